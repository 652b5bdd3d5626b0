/* The one header that bindgen and the C compiler read. */
#include <cuda.h>
