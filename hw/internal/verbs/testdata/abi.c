/* abi.c prints the layout of structures of <infiniband/verbs.h>: a line for each macro call in abi.inc, which
   TestABI writes. */
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdio.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(struct type));
#define FIELD(type, field) printf(#type "." #field " %zu %zu\n", offsetof(struct type, field), sizeof(((struct type *)0)->field));
#define VALUE(name) printf("=" #name " %lu\n", (unsigned long)(name));

int main(void)
{
#include "abi.inc"
	return 0;
}
