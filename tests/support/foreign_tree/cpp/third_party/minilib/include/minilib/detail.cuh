#pragma once
#include <thrust/version.h>
static_assert(THRUST_VERSION == 42, "the toolkit's header is read instead of the bundled one");
