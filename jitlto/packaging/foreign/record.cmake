# Run by `cmake -P`: reads a CMakeLists.txt without a compiler and without its dependencies. Commands that need a project are
# replaced by functions that write their arguments to a file, one call a line: name, source directory, arguments, in hexadecimal.
#
# Defined by the caller: JITLTO_LISTS, the CMakeLists.txt; JITLTO_RECORD, the file; JITLTO_BINARY, a directory for what is
# configured; JITLTO_UNKNOWN, commands to ignore.

cmake_policy(VERSION ${CMAKE_MAJOR_VERSION}.${CMAKE_MINOR_VERSION})

# Arguments are written one by one, because an argument may be a list; and none becomes a part of code.
foreach(name IN ITEMS target_include_directories target_compile_options target_compile_definitions target_compile_features
        target_link_libraries set_target_properties include_directories add_compile_options add_compile_definitions
        add_definitions add_library _jitlto_set_property)
  cmake_language(EVAL CODE "
    function(${name})
      string(HEX \"\${CMAKE_CURRENT_SOURCE_DIR}\" line)
      string(REGEX REPLACE ^_jitlto_ \"\" line \"${name} \${line}\")
      if(ARGC GREATER 0)
        math(EXPR last \"\${ARGC} - 1\")
        foreach(i RANGE 0 \${last})
          string(HEX \"\${ARGV\${i}}\" hex)
          string(APPEND line \" -\${hex}\")
        endforeach()
      endif()
      file(APPEND \"\${JITLTO_RECORD}\" \"\${line}\\n\")
    endfunction()")
endforeach()

foreach(name IN ITEMS add_custom_command add_custom_target add_dependencies add_executable add_link_options add_test
        aux_source_directory cmake_minimum_required create_test_sourcelist enable_language enable_testing export fltk_wrap_ui get_source_file_property
        get_target_property get_test_property include_external_msproject include_regular_expression install
        link_directories link_libraries load_cache remove_definitions set_directory_properties set_source_files_properties
        set_tests_properties source_group target_link_directories target_link_options target_precompile_headers
        target_sources try_compile try_run ${JITLTO_UNKNOWN})
  cmake_language(EVAL CODE "
    function(${name})
    endfunction()")
endforeach()

macro(project name)
  set(PROJECT_NAME "${name}")
  set(PROJECT_SOURCE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
  set(PROJECT_BINARY_DIR "${CMAKE_CURRENT_BINARY_DIR}")
  set("${name}_SOURCE_DIR" "${CMAKE_CURRENT_SOURCE_DIR}")
  set("${name}_BINARY_DIR" "${CMAKE_CURRENT_BINARY_DIR}")
  if(NOT DEFINED CMAKE_PROJECT_NAME)
    set(CMAKE_PROJECT_NAME "${name}")
  endif()
endmacro()

macro(find_package name)
  set("${name}_FOUND" TRUE)
endmacro()

# Nothing of the project is run. A command that is replaced once keeps its old meaning under the name with an underscore.
foreach(_jitlto_name IN ITEMS execute_process execute_process exec_program exec_program)
  cmake_language(EVAL CODE "
    function(${_jitlto_name})
    endfunction()")
endforeach()
function(execute_process)
  cmake_parse_arguments(PARSE_ARGV 0 _jitlto "" "RESULT_VARIABLE;OUTPUT_VARIABLE;ERROR_VARIABLE" "")
  foreach(variable IN ITEMS "${_jitlto_OUTPUT_VARIABLE}" "${_jitlto_ERROR_VARIABLE}")
    if(NOT variable STREQUAL "")
      set("${variable}" "" PARENT_SCOPE)
    endif()
  endforeach()
  if(DEFINED _jitlto_RESULT_VARIABLE)
    set("${_jitlto_RESULT_VARIABLE}" 0 PARENT_SCOPE)
  endif()
endfunction()

macro(get_property variable scope)
  if("${scope}" MATCHES "^(GLOBAL|VARIABLE|CACHE)$")
    _get_property(${ARGV})
  else()
    set("${variable}" "")
  endif()
endmacro()

function(set_property scope)
  if(scope STREQUAL "GLOBAL")
    _set_property(${ARGV})
  elseif(scope STREQUAL "TARGET")
    _jitlto_set_property(${ARGN})
  endif()
endfunction()

function(add_subdirectory directory)
  cmake_path(ABSOLUTE_PATH directory BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
  set(CMAKE_CURRENT_SOURCE_DIR "${directory}")
  if(EXISTS "${directory}/CMakeLists.txt")
    include("${directory}/CMakeLists.txt")
  endif()
endfunction()

# Files of the project are included, and those of CMake's modules that only define options. What is not there is left out.
# Each may define the functions that are to be recorded, so they are defined again after it.
macro(include _jitlto_file)
  set(_jitlto_found "")
  foreach(_jitlto_candidate IN ITEMS "${_jitlto_file}" "${CMAKE_CURRENT_SOURCE_DIR}/${_jitlto_file}")
    if(_jitlto_found STREQUAL "" AND IS_ABSOLUTE "${_jitlto_candidate}" AND EXISTS "${_jitlto_candidate}"
       AND NOT IS_DIRECTORY "${_jitlto_candidate}")
      set(_jitlto_found "${_jitlto_candidate}")
    endif()
  endforeach()
  foreach(_jitlto_directory IN LISTS CMAKE_MODULE_PATH)
    if(_jitlto_found STREQUAL "" AND EXISTS "${_jitlto_directory}/${_jitlto_file}.cmake")
      set(_jitlto_found "${_jitlto_directory}/${_jitlto_file}.cmake")
    endif()
  endforeach()
  if(_jitlto_found STREQUAL "" AND "${_jitlto_file}" MATCHES "^(CMakeDependentOption|CMakePrintHelpers)$")
    set(_jitlto_found "${_jitlto_file}")
  endif()
  if(NOT _jitlto_found STREQUAL "")
    _include("${_jitlto_found}")
    _include("${JITLTO_CALLS}")
  endif()
endmacro()

foreach(_jitlto_language IN ITEMS C CXX CUDA)
  set(CMAKE_${_jitlto_language}_COMPILER_ID GNU)
  set(CMAKE_${_jitlto_language}_COMPILER_LOADED TRUE)
endforeach()
set(CMAKE_CUDA_COMPILER_ID NVIDIA)
if(NOT DEFINED CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
cmake_path(GET JITLTO_LISTS PARENT_PATH CMAKE_SOURCE_DIR)
set(CMAKE_CURRENT_SOURCE_DIR "${CMAKE_SOURCE_DIR}")
set(CMAKE_BINARY_DIR "${JITLTO_BINARY}")
set(CMAKE_CURRENT_BINARY_DIR "${JITLTO_BINARY}")
_include("${JITLTO_CALLS}")
_include("${JITLTO_LISTS}")
