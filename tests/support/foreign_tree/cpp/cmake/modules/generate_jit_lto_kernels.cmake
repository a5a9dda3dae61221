include_guard(GLOBAL)

# A project brings its own definition, which needs a compiler, Python and a build tree.
function(generate_jit_lto_kernels source_list)
  message(FATAL_ERROR "this is replaced")
endfunction()
