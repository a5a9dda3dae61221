# The functions of RAPIDS cuVS and librtcx that declare fragments. Each call of the first becomes a file: its arguments and
# the variables that its template uses, in hexadecimal, what its libraries compile with, and what its own object library
# does, each list after a separator.

macro(jitlto_record name variable)
  if(DEFINED "${variable}")
    string(HEX "${name}" _jitlto_hex)
    string(APPEND _jitlto_content "${_jitlto_hex} ")
    string(HEX "${${variable}}" _jitlto_hex)
    string(APPEND _jitlto_content "${_jitlto_hex}\n")
  endif()
endmacro()

function(generate_jit_lto_kernels)
  cmake_parse_arguments(
    PARSE_ARGV 0 _jitlto "" "NAME_FORMAT;MATRIX_JSON_FILE;MATRIX_JSON_STRING;KERNEL_INPUT_FILE;EMBEDDED_INPUT_FILE;FRAGMENT_TAG_FORMAT;OUTPUT_DIRECTORY;JITLTO_OWN"
    "KERNEL_LINK_LIBRARIES;FRAGMENT_TAG_HEADER_FILES;KERNEL_EXTRA_COMPILE_OPTIONS"
  )
  set(_jitlto_content "")
  foreach(_jitlto_name IN ITEMS NAME_FORMAT MATRIX_JSON_FILE MATRIX_JSON_STRING KERNEL_INPUT_FILE KERNEL_EXTRA_COMPILE_OPTIONS)
    jitlto_record(${_jitlto_name} _jitlto_${_jitlto_name})
  endforeach()
  foreach(_jitlto_name IN ITEMS CMAKE_CUDA_STANDARD CMAKE_CUDA_FLAGS CMAKE_CUDA_ARCHITECTURES
          CMAKE_CUDA_COMPILER_VERSION CMAKE_CURRENT_LIST_FILE CMAKE_CURRENT_SOURCE_DIR)
    jitlto_record(${_jitlto_name} ${_jitlto_name})
  endforeach()
  # A template may use variables of the caller beside those of the matrix.
  get_filename_component(_jitlto_file "${_jitlto_KERNEL_INPUT_FILE}" ABSOLUTE)
  if(EXISTS "${_jitlto_file}" AND NOT IS_DIRECTORY "${_jitlto_file}")
    file(READ "${_jitlto_file}" _jitlto_text)
    string(REGEX MATCHALL "@[A-Za-z0-9/_.+-]+@" _jitlto_names "${_jitlto_text}")
    foreach(_jitlto_name IN LISTS _jitlto_names)
      string(REPLACE "@" "" _jitlto_variable "${_jitlto_name}")
      jitlto_record("@${_jitlto_variable}" "${_jitlto_variable}")
    endforeach()
  endif()
  get_property(_jitlto_number GLOBAL PROPERTY JITLTO_CALLS)
  math(EXPR _jitlto_number "${_jitlto_number}0 / 10 + 1")
  _set_property(GLOBAL PROPERTY JITLTO_CALLS ${_jitlto_number})
  set(_jitlto_target jitlto_call_${_jitlto_number})
  add_library(${_jitlto_target})
  target_link_libraries(${_jitlto_target} INTERFACE ${_jitlto_KERNEL_LINK_LIBRARIES} PRIVATE ${_jitlto_JITLTO_OWN})
  string(ASCII 30 _jitlto_separator)
  foreach(_jitlto_target IN ITEMS ${_jitlto_target} ${_jitlto_target}.own)
    foreach(_jitlto_name IN ITEMS INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_OPTIONS COMPILE_FEATURES)
      get_property(_jitlto_own DIRECTORY PROPERTY ${_jitlto_name})
      jitlto_for_cuda(_jitlto_own)
      string(APPEND _jitlto_content
             "${_jitlto_separator}${_jitlto_own};$<TARGET_PROPERTY:${_jitlto_target},INTERFACE_${_jitlto_name}>")
    endforeach()
  endforeach()
  file(GENERATE OUTPUT "${JITLTO_RECORD}/${_jitlto_number}" CONTENT "${_jitlto_content}" TARGET ${_jitlto_target})
endfunction()

# An object library is a fragment for each source, without a matrix.
function(rtcx_embed_blob)
  cmake_parse_arguments(PARSE_ARGV 1 _jitlto "" "ID;FILE;DEST" "ARRAY_IDS;ARRAY_VALUES")
  set(sources "")
  string(REGEX REPLACE ".*TARGET_OBJECTS:([^>]+)>.*" "\\1" objects "${_jitlto_FILE}")
  if(TARGET "${objects}")
    get_property(sources TARGET "${objects}" PROPERTY JITLTO_SOURCES)
    get_property(CMAKE_CUDA_STANDARD TARGET "${objects}" PROPERTY CUDA_STANDARD)
  endif()
  if("${sources}" STREQUAL "")
    jitlto_note("${_jitlto_FILE}, which has no source in CUDA")
  endif()
  foreach(source IN LISTS sources)
    generate_jit_lto_kernels(files NAME_FORMAT "${_jitlto_ID}" MATRIX_JSON_STRING "{}" KERNEL_INPUT_FILE "${source}"
                             KERNEL_LINK_LIBRARIES "${objects}" JITLTO_OWN "${objects}.own")
  endforeach()
endfunction()
foreach(name IN ITEMS add_embed embed embed_includes jit_lto_embed_begin jit_lto_embed_finalize)
  cmake_language(EVAL CODE "function(rtcx_${name})\nendfunction()")
endforeach()

# Other functions of these projects expand matrices too, with a program that is not run.
function(compute_matrix_product variable)
  set(${variable} "[{}]" PARENT_SCOPE)
endfunction()
