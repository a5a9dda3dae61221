#pragma once
#define MINILIB_VERSION_HEADER <thrust/version.h>
#include MINILIB_VERSION_HEADER
static_assert(THRUST_VERSION == 42, "the toolkit's header is read instead of the bundled one");
