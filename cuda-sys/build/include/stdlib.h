/* All that cuda.h takes from <stdlib.h>: no C library is needed to generate the bindings, be it for
 * this machine or for another target. */
#include <stddef.h>
