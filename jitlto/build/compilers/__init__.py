"""The compilers that make fragments, behind one interface."""
