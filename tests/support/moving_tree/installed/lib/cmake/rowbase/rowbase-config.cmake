if(NOT TARGET rowbase::rowbase)
  add_library(rowbase::rowbase INTERFACE IMPORTED)
  set_property(TARGET rowbase::rowbase PROPERTY INTERFACE_COMPILE_DEFINITIONS ROWBASE_WIDTH=$<IF:$<BOOL:yes>,4,8>)
endif()
