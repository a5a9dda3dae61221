get_filename_component(_IMPORT_PREFIX "${CMAKE_CURRENT_LIST_FILE}" PATH)
get_filename_component(_IMPORT_PREFIX "${_IMPORT_PREFIX}/../../.." ABSOLUTE)
add_library(rowmath::rowmath INTERFACE IMPORTED)
set_target_properties(
  rowmath::rowmath
  PROPERTIES INTERFACE_COMPILE_DEFINITIONS "ROWMATH=1"
             INTERFACE_COMPILE_OPTIONS "$<$<COMPILE_LANGUAGE:CXX>:-Wall>;$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>"
             INTERFACE_INCLUDE_DIRECTORIES "${_IMPORT_PREFIX}/include"
             INTERFACE_LINK_LIBRARIES "rowbase::rowbase"
)
