#pragma once
namespace cuda { namespace std {} }
namespace std { using namespace cuda::std; }
