# The functions of RAPIDS cuVS and librtcx that declare fragments, replaced by functions that record how they are called.

function(generate_jit_lto_kernels)
  cmake_parse_arguments(
    PARSE_ARGV 0 _jitlto "" "NAME_FORMAT;MATRIX_JSON_FILE;MATRIX_JSON_STRING;KERNEL_INPUT_FILE;EMBEDDED_INPUT_FILE;FRAGMENT_TAG_FORMAT;OUTPUT_DIRECTORY"
    "KERNEL_LINK_LIBRARIES;FRAGMENT_TAG_HEADER_FILES;KERNEL_EXTRA_COMPILE_OPTIONS"
  )
  set(_jitlto_arguments "")
  foreach(_jitlto_name IN ITEMS NAME_FORMAT MATRIX_JSON_FILE MATRIX_JSON_STRING KERNEL_INPUT_FILE KERNEL_LINK_LIBRARIES
          KERNEL_EXTRA_COMPILE_OPTIONS)
    if(DEFINED _jitlto_${_jitlto_name})
      list(APPEND _jitlto_arguments "${_jitlto_name}" "_jitlto_${_jitlto_name}")
    endif()
  endforeach()
  foreach(_jitlto_name IN ITEMS CMAKE_CUDA_STANDARD CMAKE_CUDA_FLAGS CMAKE_CUDA_ARCHITECTURES)
    if(DEFINED ${_jitlto_name})
      list(APPEND _jitlto_arguments "${_jitlto_name}" "${_jitlto_name}")
    endif()
  endforeach()
  # A template may use variables of the caller beside those of the matrix.
  set(_jitlto_KERNEL_INPUT_FILE "${_jitlto_KERNEL_INPUT_FILE}")
  cmake_path(ABSOLUTE_PATH _jitlto_KERNEL_INPUT_FILE BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
  if(EXISTS "${_jitlto_KERNEL_INPUT_FILE}" AND NOT IS_DIRECTORY "${_jitlto_KERNEL_INPUT_FILE}")
    file(READ "${_jitlto_KERNEL_INPUT_FILE}" _jitlto_text)
    string(REGEX MATCHALL "@[A-Za-z0-9/_.+-]+@" _jitlto_names "${_jitlto_text}${_jitlto_NAME_FORMAT}")
    list(REMOVE_DUPLICATES _jitlto_names)
    foreach(_jitlto_name IN LISTS _jitlto_names)
      string(REPLACE "@" "" _jitlto_name "${_jitlto_name}")
      if(DEFINED "${_jitlto_name}")
        list(APPEND _jitlto_arguments "@${_jitlto_name}" "${_jitlto_name}")
      endif()
    endforeach()
  endif()
  # Pairs of a name and a variable: values may be lists.
  string(HEX "${CMAKE_CURRENT_SOURCE_DIR}" _jitlto_line)
  set(_jitlto_line "generate_jit_lto_kernels ${_jitlto_line}")
  while(_jitlto_arguments)
    list(POP_FRONT _jitlto_arguments _jitlto_name _jitlto_variable)
    string(HEX "${_jitlto_name}" _jitlto_hex)
    string(APPEND _jitlto_line " -${_jitlto_hex}")
    string(HEX "${${_jitlto_variable}}" _jitlto_hex)
    string(APPEND _jitlto_line " -${_jitlto_hex}")
  endwhile()
  file(APPEND "${JITLTO_RECORD}" "${_jitlto_line}\n")
endfunction()

# Other functions of these projects expand matrices too, with a program that is not run.
function(compute_matrix_product variable)
  set(${variable} "[{}]" PARENT_SCOPE)
endfunction()

foreach(_jitlto_name IN ITEMS generate_cutile_kernels rtcx_jit_lto_embed_begin rtcx_jit_lto_embed_finalize rtcx_add_embed
        rtcx_embed rtcx_embed_blob)
  cmake_language(EVAL CODE "
    function(${_jitlto_name})
    endfunction()")
endforeach()
