// A CUDA driver for tests, over memory of the host. It follows the documented behaviour of the driver
// where programs go wrong: work of streams is done later, by a thread for each stream; functions need a
// context on the calling thread, and handles of that context; a fault of a kernel fails all later
// functions of its context; freeing memory waits for the device; addresses of devices are not
// addresses of the host; memory is limited. Functions fakecuda_* control it.
//
// It does not compile PTX. A kernel is run by a function that the test sets (fakecuda_set_runner).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_DEVICES 16
#define DEVICE_BIT 0x1000000000000000ull // set in addresses of devices

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct ctx *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct module *CUmodule;
typedef struct function *CUfunction;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcMemHandle;

enum {
	OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201, INVALID_PTX = 218, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600,
	ILLEGAL_ADDRESS = 700, PEER_ALREADY_ENABLED = 704, NOT_SUPPORTED = 801,
};

static const struct { int code; const char *name, *text; } errors[] = {
	{OK, "CUDA_SUCCESS", "no error"},
	{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
	{INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
	{ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{PEER_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
	{NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

struct ctx { int device, retains; CUresult sticky; uint32_t peers; };

enum { DEVICE_MEMORY, HOST_MEMORY, IPC_MEMORY };
struct alloc { char *base; size_t n; int kind, device, fd; struct alloc *next; };

struct event { struct ctx *ctx; uint64_t recorded, done; bool dead; };

enum { COPY, LAUNCH, RECORD, WAIT, HOST };
struct op {
	int kind;
	char *dst; const char *src; size_t dst_pitch, src_pitch, width, height;
	struct function *f; uint64_t args[16]; int gx, gy, bx;
	struct event *event; uint64_t generation;
	void (*host)(void *); void *data;
	struct op *next;
};
struct stream {
	struct ctx *ctx; bool held, closing; int busy; struct op *first, **last; struct stream *next; unsigned seed;
};
struct module { struct ctx *ctx; char *text; };
struct function { struct module *module; char name[64]; int params; };

typedef int (*runner)(const char *ptx, const char *entry, uint64_t *args, uint64_t gx, uint64_t gy, uint64_t bx);

static pthread_mutex_t L = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t C = PTHREAD_COND_INITIALIZER;
static bool initialized;
static int devices = -1;
static size_t memory = 256 << 20, used[MAX_DEVICES];
static struct ctx ctxs[MAX_DEVICES];
static struct alloc *allocs;
static struct stream *streams;
static int live_events, pageable, faults[MAX_DEVICES], direct;
static runner run;
static __thread struct ctx *current;

#define CALLS 64
static struct { char name[48]; int count, fail_at, code; bool hang; } calls[CALLS];

static int slot(const char *name) {
	for (int i = 0; i < CALLS; i++) {
		if (!strcmp(calls[i].name, name)) return i;
		if (!calls[i].name[0]) { snprintf(calls[i].name, sizeof calls[i].name, "%s", name); return i; }
	}
	abort();
}

// enter counts a call. It returns an injected failure.
static CUresult enter(const char *name) {
	int i = slot(name);
	calls[i].count++;
	while (calls[i].hang) pthread_cond_wait(&C, &L);
	if (calls[i].fail_at > 0 && --calls[i].fail_at == 0) return calls[i].code;
	return initialized || !strcmp(name, "cuInit") ? OK : NOT_INITIALIZED;
}

#define UNLOCK_RETURN(r) do { CUresult result = (r); pthread_mutex_unlock(&L); return result; } while (0)
#define ENTER() do { pthread_mutex_lock(&L); CUresult failure = enter(__func__); if (failure) UNLOCK_RETURN(failure); } while (0)
#define ENTER_CTX() do { ENTER(); if (!current || !current->retains) UNLOCK_RETURN(INVALID_CONTEXT); \
	if (current->sticky) UNLOCK_RETURN(current->sticky); } while (0)

// Control.

void fakecuda_set_runner(runner r) { pthread_mutex_lock(&L); run = r; pthread_mutex_unlock(&L); }
void fakecuda_configure(int n, size_t bytes) { pthread_mutex_lock(&L); devices = n; memory = bytes; pthread_mutex_unlock(&L); }
void fakecuda_fail(const char *name, int nth, int code) {
	pthread_mutex_lock(&L); int i = slot(name); calls[i].fail_at = nth; calls[i].code = code; pthread_mutex_unlock(&L);
}
void fakecuda_hang(const char *name, int on) {
	pthread_mutex_lock(&L); calls[slot(name)].hang = on; pthread_cond_broadcast(&C); pthread_mutex_unlock(&L);
}
int fakecuda_calls(const char *name) { pthread_mutex_lock(&L); int n = calls[slot(name)].count; pthread_mutex_unlock(&L); return n; }
void fakecuda_hold(CUstream s, int on) {
	pthread_mutex_lock(&L);
	for (struct stream *q = streams; q; q = q->next) if (q == s) q->held = on;
	pthread_cond_broadcast(&C);
	pthread_mutex_unlock(&L);
}
// fakecuda_fault makes the next work of a device, if it is a copy or a kernel, access memory that it may not.
void fakecuda_fault(int device) { pthread_mutex_lock(&L); faults[device]++; pthread_mutex_unlock(&L); }
// fakecuda_failed reports whether a fault has failed a context, which then does no work.
int fakecuda_failed(CUcontext c) { pthread_mutex_lock(&L); int failed = c->sticky != OK; pthread_mutex_unlock(&L); return failed; }
// fakecuda_direct lets network cards access the memory of devices.
void fakecuda_direct(int on) { pthread_mutex_lock(&L); direct = on; pthread_mutex_unlock(&L); }
int fakecuda_pageable(void) { pthread_mutex_lock(&L); int n = pageable; pthread_mutex_unlock(&L); return n; }
int fakecuda_live(void) {
	pthread_mutex_lock(&L);
	int n = live_events;
	for (struct alloc *a = allocs; a; a = a->next) n++;
	for (struct stream *s = streams; s; s = s->next) n += !s->closing;
	for (int i = 0; i < MAX_DEVICES; i++) n += ctxs[i].retains;
	pthread_mutex_unlock(&L);
	return n;
}

static bool inside(struct alloc *a, const char *p, size_t n) { return p >= a->base && n <= a->n && (size_t)(p - a->base) <= a->n - n; }

static struct alloc *find(const char *p, size_t n, bool host) {
	for (struct alloc *a = allocs; a; a = a->next)
		if ((a->kind == HOST_MEMORY) == host && inside(a, p, n)) return a;
	return NULL;
}

// of returns the memory of a range of a device that ctx may access, or NULL.
static char *of(struct ctx *ctx, CUdeviceptr p, size_t n) {
	if (!(p & DEVICE_BIT)) return NULL;
	char *q = (char *)(uintptr_t)(p & ~DEVICE_BIT);
	struct alloc *a = find(q, n, false);
	if (!a || (a->device != ctx->device && !(ctx->peers >> a->device & 1))) return NULL;
	return q;
}

// fakecuda_find returns the allocation that has an address of a device, for a runner, or NULL.
void *fakecuda_find(CUdeviceptr p, size_t *n) {
	pthread_mutex_lock(&L);
	struct alloc *a = p & DEVICE_BIT ? find((char *)(uintptr_t)(p & ~DEVICE_BIT), 1, false) : NULL;
	if (a) *n = a->n;
	void *base = a ? a->base : NULL;
	pthread_mutex_unlock(&L);
	return base;
}

// Errors and devices.

CUresult cuGetErrorName(CUresult e, const char **s) {
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) if (errors[i].code == e) { *s = errors[i].name; return OK; }
	*s = NULL;
	return INVALID_VALUE;
}
CUresult cuGetErrorString(CUresult e, const char **s) {
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) if (errors[i].code == e) { *s = errors[i].text; return OK; }
	*s = NULL;
	return INVALID_VALUE;
}
CUresult cuInit(unsigned flags) {
	ENTER();
	if (flags) UNLOCK_RETURN(INVALID_VALUE);
	const char *n = getenv("FAKECUDA_DEVICES"), *m = getenv("FAKECUDA_MEMORY"), *v = getenv("CUDA_VISIBLE_DEVICES");
	if (devices < 0) devices = n ? atoi(n) : 2;
	if (m) memory = strtoull(m, NULL, 10);
	if (v && !*v) devices = 0;
	if (devices == 0 && !initialized) UNLOCK_RETURN(NO_DEVICE); // later calls do nothing
	initialized = true;
	UNLOCK_RETURN(OK);
}
CUresult cuDriverGetVersion(int *v) { *v = 12040; return OK; }
CUresult cuDeviceGetCount(int *n) { ENTER(); *n = devices; UNLOCK_RETURN(OK); }
CUresult cuDeviceGet(CUdevice *d, int ordinal) {
	ENTER();
	if (ordinal < 0 || ordinal >= devices) UNLOCK_RETURN(INVALID_DEVICE);
	*d = ordinal;
	UNLOCK_RETURN(OK);
}
CUresult cuDeviceGetName(char *name, int n, CUdevice d) { ENTER(); snprintf(name, n, "Fake device"); UNLOCK_RETURN(d < devices ? OK : INVALID_DEVICE); }
CUresult cuDeviceGetUuid_v2(CUuuid *u, CUdevice d) { ENTER(); memset(u, 0, 16); u->bytes[0] = 0xfa; u->bytes[15] = d; UNLOCK_RETURN(OK); }
CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice d) { ENTER(); *n = memory; UNLOCK_RETURN(d < devices ? OK : INVALID_DEVICE); }
CUresult cuDeviceGetAttribute(int *v, int attribute, CUdevice d) {
	ENTER();
	switch (attribute) {
	case 11: *v = 0x7fffffff; break;
	case 16: *v = 4; break;
	case 75: *v = 7; break;
	case 76: *v = 0; break;
	case 116: case 124: *v = direct; break; // GPUDirect RDMA, dma-buf
	case 117: *v = direct; break; // flushed by the host
	case 118: *v = 0; break; // writes of network cards are not ordered without a flush
	default: *v = 0;
	}
	UNLOCK_RETURN(d < devices ? OK : INVALID_DEVICE);
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
	ENTER();
	if (d < 0 || d >= devices) UNLOCK_RETURN(INVALID_DEVICE);
	if (!ctxs[d].retains) ctxs[d] = (struct ctx){.device = d};
	ctxs[d].retains++;
	*c = &ctxs[d];
	UNLOCK_RETURN(OK);
}
static void drop(struct alloc **p) {
	struct alloc *a = *p;
	*p = a->next;
	munmap(a->base, a->n);
	if (a->fd >= 0) close(a->fd);
	if (a->kind == DEVICE_MEMORY) used[a->device] -= a->n;
	free(a);
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
	ENTER();
	if (d < 0 || d >= devices || !ctxs[d].retains) UNLOCK_RETURN(INVALID_CONTEXT);
	if (--ctxs[d].retains == 0) {
		for (struct alloc **p = &allocs; *p;) {
			if ((*p)->device == d) drop(p); else p = &(*p)->next;
		}
	}
	UNLOCK_RETURN(OK);
}
CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer) { ENTER(); *can = d != peer; UNLOCK_RETURN(OK); }
CUresult cuCtxSetCurrent(CUcontext c) { ENTER(); current = c; UNLOCK_RETURN(OK); }
CUresult cuCtxGetCurrent(CUcontext *c) { ENTER(); *c = current; UNLOCK_RETURN(OK); }
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
	ENTER_CTX();
	if (flags || peer == current) UNLOCK_RETURN(INVALID_DEVICE);
	if (current->peers >> peer->device & 1) UNLOCK_RETURN(PEER_ALREADY_ENABLED);
	current->peers |= 1u << peer->device;
	UNLOCK_RETURN(OK);
}

// Memory.

CUresult cuMemGetInfo_v2(size_t *f, size_t *t) { ENTER_CTX(); *t = memory; *f = memory - used[current->device]; UNLOCK_RETURN(OK); }
static void add(char *base, size_t n, int kind, int device, int fd) {
	struct alloc *a = malloc(sizeof *a);
	*a = (struct alloc){base, n, kind, device, fd, allocs};
	allocs = a;
}
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
	ENTER_CTX();
	if (!n) UNLOCK_RETURN(INVALID_VALUE);
	if (n > memory - used[current->device]) UNLOCK_RETURN(OUT_OF_MEMORY);
	int fd = memfd_create("fakecuda", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, n)) UNLOCK_RETURN(OUT_OF_MEMORY);
	char *base = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) { close(fd); UNLOCK_RETURN(OUT_OF_MEMORY); }
	memset(base, 0x5a, n);
	used[current->device] += n;
	add(base, n, DEVICE_MEMORY, current->device, fd);
	*p = (uintptr_t)base | DEVICE_BIT;
	UNLOCK_RETURN(OK);
}
// settle waits until all streams of a context have done their work.
static void settle(struct ctx *c) {
again:
	for (struct stream *s = streams; s; s = s->next)
		if (s->ctx == c && (s->first || s->busy)) { pthread_cond_wait(&C, &L); goto again; }
}
static CUresult release(char *base, int kind) {
	settle(current);
	for (struct alloc **p = &allocs; *p; p = &(*p)->next)
		if ((*p)->base == base && (*p)->kind == kind) { drop(p); return OK; }
	return INVALID_VALUE;
}
CUresult cuMemFree_v2(CUdeviceptr p) { ENTER_CTX(); UNLOCK_RETURN(release((char *)(uintptr_t)(p & ~DEVICE_BIT), DEVICE_MEMORY)); }
CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags) {
	ENTER_CTX();
	if (!n || flags & ~7u) UNLOCK_RETURN(INVALID_VALUE);
	char *base = n > (size_t)1 << 40 ? MAP_FAILED : mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED) UNLOCK_RETURN(OUT_OF_MEMORY);
	add(base, n, HOST_MEMORY, current->device, -1);
	*p = base;
	UNLOCK_RETURN(OK);
}
CUresult cuMemFreeHost(void *p) { ENTER_CTX(); UNLOCK_RETURN(release(p, HOST_MEMORY)); }
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *n, CUdeviceptr p) {
	ENTER_CTX();
	struct alloc *a = find((char *)(uintptr_t)(p & ~DEVICE_BIT), 1, false);
	if (!a) UNLOCK_RETURN(INVALID_VALUE);
	if (base) *base = (uintptr_t)a->base | DEVICE_BIT;
	if (n) *n = a->n;
	UNLOCK_RETURN(OK);
}

// A file of a range begins at the position of the file: that of a dma-buf is the beginning of the range.
CUresult cuMemGetHandleForAddressRange(int *out, CUdeviceptr p, size_t n, int type, unsigned long long flags) {
	ENTER_CTX();
	struct alloc *a = p & DEVICE_BIT ? find((char *)(uintptr_t)(p & ~DEVICE_BIT), n, false) : NULL;
	if (!direct) UNLOCK_RETURN(NOT_SUPPORTED);
	if (!a || type != 1 || flags || p % 4096 || (n % 4096 && n < a->n)) UNLOCK_RETURN(INVALID_VALUE);
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", a->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) UNLOCK_RETURN(INVALID_VALUE);
	lseek(fd, (char *)(uintptr_t)(p & ~DEVICE_BIT) - a->base, SEEK_SET);
	*out = fd;
	UNLOCK_RETURN(OK);
}
CUresult cuFlushGPUDirectRDMAWrites(int target, int scope) {
	void (*flush)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "fakeverbs_flush");
	if (flush) flush(); // which calls functions of this file
	ENTER_CTX();
	UNLOCK_RETURN(target == 0 && scope == 100 ? OK : INVALID_VALUE);
}

struct ipc { char magic[8]; int pid, fd, device; size_t n; };
CUresult cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr p) {
	ENTER_CTX();
	struct alloc *a = find((char *)(uintptr_t)(p & ~DEVICE_BIT), 1, false);
	if (!a || a->kind != DEVICE_MEMORY) UNLOCK_RETURN(INVALID_VALUE);
	struct ipc i = {"fakecud", getpid(), a->fd, a->device, a->n};
	memset(h, 0, sizeof *h);
	memcpy(h, &i, sizeof i);
	UNLOCK_RETURN(OK);
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *p, CUipcMemHandle h, unsigned flags) {
	ENTER_CTX();
	struct ipc i;
	memcpy(&i, &h, sizeof i);
	if (flags != 1 || memcmp(i.magic, "fakecud", 8)) UNLOCK_RETURN(INVALID_VALUE);
	if (i.pid == getpid()) UNLOCK_RETURN(INVALID_CONTEXT);
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fd/%d", i.pid, i.fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	char *base = fd < 0 ? MAP_FAILED : mmap(NULL, i.n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) { if (fd >= 0) close(fd); UNLOCK_RETURN(INVALID_HANDLE); }
	add(base, i.n, IPC_MEMORY, current->device, fd);
	*p = (uintptr_t)base | DEVICE_BIT;
	UNLOCK_RETURN(OK);
}
CUresult cuIpcCloseMemHandle(CUdeviceptr p) { ENTER_CTX(); UNLOCK_RETURN(release((char *)(uintptr_t)(p & ~DEVICE_BIT), IPC_MEMORY)); }

// Streams and events.

static bool fault(struct ctx *c) { if (!faults[c->device]) return false; faults[c->device]--; return true; }

// perform does work. L is held on entry and on return.
static void perform(struct stream *s, struct op *o) {
	CUresult bad = OK;
	if (o->kind == WAIT) {
		while (o->event->done < o->generation && !s->ctx->sticky) pthread_cond_wait(&C, &L);
		return;
	}
	if (s->ctx->sticky) return;
	if (o->kind == HOST) {
		pthread_mutex_unlock(&L);
		o->host(o->data);
		pthread_mutex_lock(&L);
		return;
	}
	if (o->kind == RECORD) { o->event->done = o->generation; return; }
	if (fault(s->ctx)) { s->ctx->sticky = ILLEGAL_ADDRESS; return; }
	if (o->kind == COPY) {
		// The memory may have been freed since the call.
		size_t last = o->height - 1;
		for (int k = 0; k < 2; k++) {
			const char *p = k ? o->src : o->dst;
			size_t n = last * (k ? o->src_pitch : o->dst_pitch) + o->width;
			if (!find(p, n, true) && !find(p, n, false)) bad = ILLEGAL_ADDRESS;
		}
	}
	runner r = run;
	pthread_mutex_unlock(&L);
	if (rand_r(&s->seed) % 4 == 0) usleep(rand_r(&s->seed) % 50); else sched_yield();
	if (!bad && o->kind == COPY)
		for (size_t i = 0; i < o->height; i++) memmove(o->dst + i * o->dst_pitch, o->src + i * o->src_pitch, o->width);
	if (o->kind == LAUNCH && r(o->f->module->text, o->f->name, o->args, o->gx, o->gy, o->bx)) bad = ILLEGAL_ADDRESS;
	pthread_mutex_lock(&L);
	if (bad) s->ctx->sticky = bad;
}

static void *work(void *p) {
	struct stream *s = p;
	pthread_mutex_lock(&L);
	for (;;) {
		while ((!s->first && !s->closing) || (s->first && s->held)) pthread_cond_wait(&C, &L);
		struct op *o = s->first;
		if (!o) break;
		s->first = o->next;
		if (!s->first) s->last = &s->first;
		s->busy++;
		perform(s, o);
		s->busy--;
		free(o);
		pthread_cond_broadcast(&C);
	}
	for (struct stream **q = &streams; *q; q = &(*q)->next) if (*q == s) { *q = s->next; break; }
	pthread_cond_broadcast(&C);
	pthread_mutex_unlock(&L);
	free(s);
	return NULL;
}

CUresult cuStreamCreate(CUstream *out, unsigned flags) {
	ENTER_CTX();
	if (flags > 1) UNLOCK_RETURN(INVALID_VALUE);
	struct stream *s = calloc(1, sizeof *s);
	s->ctx = current;
	s->last = &s->first;
	s->next = streams;
	s->seed = (unsigned)(uintptr_t)s;
	streams = s;
	pthread_t t;
	pthread_create(&t, NULL, work, s);
	pthread_detach(t);
	*out = s;
	UNLOCK_RETURN(OK);
}
static bool valid(CUstream s) {
	for (struct stream *q = streams; q; q = q->next) if (q == s) return q->ctx == current && !q->closing;
	return false;
}
CUresult cuStreamDestroy_v2(CUstream s) {
	ENTER_CTX();
	if (!valid(s)) UNLOCK_RETURN(INVALID_HANDLE);
	s->closing = true;
	pthread_cond_broadcast(&C);
	UNLOCK_RETURN(OK);
}
static void push(CUstream s, struct op o) {
	struct op *q = malloc(sizeof *q);
	*q = o;
	q->next = NULL;
	*s->last = q;
	s->last = &q->next;
	pthread_cond_broadcast(&C);
}
CUresult cuEventCreate(CUevent *e, unsigned flags) {
	ENTER_CTX();
	if (flags & ~7u) UNLOCK_RETURN(INVALID_VALUE);
	*e = calloc(1, sizeof **e);
	(*e)->ctx = current;
	live_events++;
	UNLOCK_RETURN(OK);
}
CUresult cuEventDestroy_v2(CUevent e) {
	ENTER_CTX();
	if (e->dead || e->ctx != current) UNLOCK_RETURN(INVALID_HANDLE);
	e->dead = true; // not freed: queued work may still record it
	live_events--;
	UNLOCK_RETURN(OK);
}
CUresult cuEventRecord(CUevent e, CUstream s) {
	ENTER_CTX();
	if (!valid(s) || e->dead || e->ctx != current) UNLOCK_RETURN(INVALID_HANDLE);
	push(s, (struct op){.kind = RECORD, .event = e, .generation = ++e->recorded});
	UNLOCK_RETURN(OK);
}
CUresult cuEventQuery(CUevent e) {
	ENTER_CTX();
	if (e->dead || e->ctx != current) UNLOCK_RETURN(INVALID_HANDLE);
	UNLOCK_RETURN(e->done == e->recorded ? OK : NOT_READY);
}
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
	ENTER_CTX();
	if (!valid(s) || e->dead || flags) UNLOCK_RETURN(INVALID_HANDLE);
	push(s, (struct op){.kind = WAIT, .event = e, .generation = e->recorded});
	UNLOCK_RETURN(OK);
}

CUresult cuLaunchHostFunc(CUstream s, void (*f)(void *), void *data) {
	ENTER_CTX();
	if (!valid(s) || !f) UNLOCK_RETURN(INVALID_HANDLE);
	push(s, (struct op){.kind = HOST, .host = f, .data = data});
	UNLOCK_RETURN(OK);
}

// Copies.

// copy queues a copy. Memory of the host that the driver has not allocated is copied at once.
static CUresult copy(CUstream s, struct op o, bool host) {
	if (!valid(s)) return INVALID_HANDLE;
	if (!o.dst || !o.src) return INVALID_VALUE;
	o.kind = COPY;
	push(s, o);
	if (host) {
		pageable++;
		while (s->first || s->busy) pthread_cond_wait(&C, &L);
	}
	return OK;
}
static size_t extent(size_t pitch, size_t width, size_t height) { return (height - 1) * pitch + width; }

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream s) {
	ENTER_CTX();
	UNLOCK_RETURN(copy(s, (struct op){.dst = of(current, dst, n), .src = src, .width = n, .height = 1}, !find(src, n, true)));
}
CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream s) {
	ENTER_CTX();
	UNLOCK_RETURN(copy(s, (struct op){.dst = dst, .src = of(current, src, n), .width = n, .height = 1}, !find(dst, n, true)));
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s) {
	ENTER_CTX();
	UNLOCK_RETURN(copy(s, (struct op){.dst = of(current, dst, n), .src = of(current, src, n), .width = n, .height = 1}, false));
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dc, CUdeviceptr src, CUcontext sc, size_t n, CUstream s) {
	ENTER_CTX();
	if (!dc->retains || !sc->retains) UNLOCK_RETURN(INVALID_CONTEXT);
	UNLOCK_RETURN(copy(s, (struct op){.dst = of(dc, dst, n), .src = of(sc, src, n), .width = n, .height = 1}, false));
}
struct memcpy2d {
	size_t src_x, src_y; unsigned src_type; const void *src_host; CUdeviceptr src_device; void *src_array; size_t src_pitch;
	size_t dst_x, dst_y; unsigned dst_type; void *dst_host; CUdeviceptr dst_device; void *dst_array; size_t dst_pitch;
	size_t width, height;
};
CUresult cuMemcpy2DAsync_v2(const struct memcpy2d *m, CUstream s) {
	ENTER_CTX();
	if (!m->width || !m->height || m->src_pitch < m->width || m->dst_pitch < m->width) UNLOCK_RETURN(INVALID_VALUE);
	// Between addresses of a device the driver accepts only pitches of its own.
	if (m->src_type == 2 && m->dst_type == 2) UNLOCK_RETURN(INVALID_VALUE);
	struct op o = {.dst_pitch = m->dst_pitch, .src_pitch = m->src_pitch, .width = m->width, .height = m->height};
	size_t from = extent(m->src_pitch, m->width, m->height), to = extent(m->dst_pitch, m->width, m->height);
	o.src = m->src_type == 1 ? m->src_host : of(current, m->src_device, from);
	o.dst = m->dst_type == 1 ? m->dst_host : of(current, m->dst_device, to);
	bool host = (m->src_type == 1 && !find(o.src, from, true)) || (m->dst_type == 1 && !find(o.dst, to, true));
	UNLOCK_RETURN(copy(s, o, host));
}

// Kernels.

CUresult cuModuleLoadDataEx(CUmodule *m, const void *image, unsigned n, int *options, void **values) {
	ENTER_CTX();
	const char *text = image;
	if (strncmp(text, "//", 2) || !strstr(text, ".version") || !strstr(text, ".target") || !strstr(text, ".address_size 64")) {
		for (unsigned i = 0; i < n; i++) if (options[i] == 5) snprintf(values[i], 100, "fake ptxas: no .version, .target or .address_size");
		UNLOCK_RETURN(INVALID_PTX);
	}
	*m = calloc(1, sizeof **m);
	(*m)->ctx = current;
	(*m)->text = strdup(text);
	UNLOCK_RETURN(OK);
}
CUresult cuModuleUnload(CUmodule m) { ENTER_CTX(); UNLOCK_RETURN(m->ctx == current ? OK : INVALID_HANDLE); }
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
	ENTER_CTX();
	if (m->ctx != current) UNLOCK_RETURN(INVALID_HANDLE);
	char entry[96];
	snprintf(entry, sizeof entry, ".visible .entry %s(", name);
	const char *p = strstr(m->text, entry), *end = p ? strchr(p + strlen(entry), ')') : NULL;
	if (!end) UNLOCK_RETURN(NOT_FOUND);
	*f = calloc(1, sizeof **f);
	(*f)->module = m;
	snprintf((*f)->name, sizeof (*f)->name, "%s", name);
	while ((p = strstr(p, ".param")) && p < end) { (*f)->params++; p++; }
	UNLOCK_RETURN(OK);
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		unsigned shared, CUstream s, void **params, void **extra) {
	ENTER_CTX();
	if (!valid(s) || f->module->ctx != current) UNLOCK_RETURN(INVALID_HANDLE);
	if (!gx || !gy || gy > 65535 || gz != 1 || !bx || bx > 1024 || by != 1 || bz != 1 || shared || !params || extra) UNLOCK_RETURN(INVALID_VALUE);
	if (!run) UNLOCK_RETURN(NOT_SUPPORTED);
	struct op o = {.kind = LAUNCH, .f = f, .gx = gx, .gy = gy, .bx = bx};
	for (int i = 0; i < f->params; i++) o.args[i] = *(uint64_t *)params[i];
	push(s, o);
	UNLOCK_RETURN(OK);
}
