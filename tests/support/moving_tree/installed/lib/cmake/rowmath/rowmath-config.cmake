include(CMakeFindDependencyMacro)
find_dependency(rowbase)
include("${CMAKE_CURRENT_LIST_DIR}/rowmath-targets.cmake")
