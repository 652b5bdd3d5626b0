/* The header that bindgen read, for the C compiler to check its work against. */
#include "cuda-sys/wrapper.h"
