#ifndef CUDA_SYS_STDDEF_H
#define CUDA_SYS_STDDEF_H
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
#define NULL ((void *)0)
#endif
