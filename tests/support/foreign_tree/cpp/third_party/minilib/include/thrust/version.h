#pragma once
#define THRUST_VERSION 42  // the toolkit's header of this name has another
