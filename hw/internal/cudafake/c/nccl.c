// A library of the interface of NCCL for tests, for ranks in one or several processes of a machine. It works
// on memory of the fake CUDA driver, in the order of its streams: a call returns before the work is done,
// and the work ends when all ranks have called, or when the communicator is aborted. When the process of a rank that
// others wait for has ended, they have the asynchronous error REMOTE, and their work does not end before the abort.
// The thread that initializes a communicator writes its address to the caller's memory, after the call has returned.
// Elements are of 4 and 8 bytes, or single bytes.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef int result;
enum { SUCCESS = 0, UNHANDLED_CUDA = 1, SYSTEM = 2, INTERNAL = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE = 6, IN_PROGRESS = 7 };
typedef struct { char bytes[128]; } unique_id;
typedef struct CUstream_st *stream;
typedef struct { size_t size; unsigned magic, version; int blocking; } config;

extern int cuLaunchHostFunc(stream s, void (*f)(void *), void *data);
extern int cuCtxGetCurrent(void **c);
extern int fakecuda_failed(void *c);
extern void *fakecuda_find(uint64_t p, size_t *n);

#define RANKS 64
// A board is memory that all ranks of a communicator share.
struct board { _Atomic uint64_t arrived[RANKS]; _Atomic int version[RANKS], pid[RANKS]; _Atomic int left; };

struct comm {
	struct board *board; char name[96]; int n, rank; uint64_t step;
	_Atomic bool aborted; _Atomic int state; // of the initialization and of later errors
	pthread_t init; int version; _Atomic int pending;
	struct comm **out; // of the caller, written when the initialization ends
	void *ctx;
	uint64_t sent[RANKS], received[RANKS]; // messages, when they are queued
	struct comm *following; // in the list of communicators
};

static pthread_mutex_t L = PTHREAD_MUTEX_INITIALIZER;
static struct comm *comms;
static _Atomic int groups, remote_errors;

// Control.

// fakenccl_groups returns the number of group calls of this process that have ended.
int fakenccl_groups(void) { return groups; }
// fakenccl_cut gives all communicators of this process the asynchronous error REMOTE, as if a connection had failed.
void fakenccl_cut(void) {
	pthread_mutex_lock(&L);
	for (struct comm *c = comms; c; c = c->following) c->state = REMOTE;
	pthread_mutex_unlock(&L);
}
// fakenccl_remote_errors returns the number of calls that have returned the asynchronous error REMOTE.
int fakenccl_remote_errors(void) { return remote_errors; }

static __thread char last[256];

static int own_version(void) { const char *v = getenv("FAKENCCL_VERSION"); return v ? atoi(v) : 22304; }
result ncclGetVersion(int *v) { *v = own_version(); return SUCCESS; }
const char *ncclGetErrorString(result r) {
	static const char *text[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage", "remote process exited or there was a network error", "NCCL operation in progress"};
	return r >= 0 && r < 8 ? text[r] : "unknown result code";
}
const char *ncclGetLastError(struct comm *c) { (void)c; return last; }
static result fail(result r, const char *why) { snprintf(last, sizeof last, "%s", why); return r; }

result ncclGetUniqueId(unique_id *u) {
	memset(u, 'x', sizeof *u);
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	static _Atomic int count;
	snprintf(u->bytes, 64, "/fakenccl-%d-%ld-%d", getpid(), t.tv_nsec, count++);
	return SUCCESS;
}

static void nap(void) { struct timespec t = {0, 200000}; nanosleep(&t, NULL); }

// gone reports whether the process of a rank has ended. Until its parent has waited for it, it is in the state Z.
static bool gone(struct comm *c, int rank) {
	char path[32], text[256] = "";
	int pid = c->board->pid[rank];
	if (!pid) return false; // the rank has not begun
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) return errno == ENOENT;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	char *state = n > 0 ? strrchr(text, ')') : NULL;
	return n < 0 || (state && state[1] == ' ' && (state[2] == 'Z' || state[2] == 'X'));
}

// meet waits until all ranks have arrived at a step. It returns false if the communicator is aborted.
static bool meet(struct comm *c) {
	c->step++;
	c->board->arrived[c->rank] = c->step;
	for (int r = 0; r < c->n; r++)
		for (int i = 1; c->board->arrived[r] < c->step; i++) {
			if (c->aborted) return false;
			nap();
			if (i % 10 == 0 && gone(c, r) && c->board->arrived[r] < c->step) c->state = REMOTE;
		}
	return true;
}

static void *begin(void *p) {
	struct comm *c = p;
	c->board->version[c->rank] = c->version;
	int state = meet(c) ? SUCCESS : INTERNAL;
	for (int r = 0; r < c->n && state == SUCCESS; r++) if (c->board->version[r] != c->version) state = INVALID_USAGE;
	__atomic_store_n(c->out, c, __ATOMIC_RELEASE);
	c->state = state;
	return NULL;
}

static result init(struct comm **out, int n, int rank, const unique_id *id, const config *cfg) {
	if (!out || n < 1 || n > RANKS || rank < 0 || rank >= n) return fail(INVALID_ARGUMENT, "fake: rank or number of ranks");
	for (int i = 64; i < 128; i++) if (id->bytes[i] != 'x') return fail(INVALID_USAGE, "fake: the id is damaged");
	if (cfg && (cfg->magic != 0xcafebeef || cfg->size < 20)) return fail(INVALID_ARGUMENT, "fake: the config is damaged");
	void *ctx = NULL;
	if (cuCtxGetCurrent(&ctx) || !ctx) return fail(UNHANDLED_CUDA, "fake: no context on this thread");
#ifdef NO_COMM
	return SUCCESS;
#endif
	struct comm *c = calloc(1, sizeof *c);
	c->out = out; c->ctx = ctx; c->n = n; c->rank = rank; c->version = own_version(); c->state = IN_PROGRESS;
	snprintf(c->name, 64, "%.63s", id->bytes);
	int fd = shm_open(c->name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof *c->board)) return fail(SYSTEM, "fake: shm_open");
	c->board = mmap(NULL, sizeof *c->board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	c->board->pid[rank] = getpid();
	pthread_mutex_lock(&L);
	c->following = comms;
	comms = c;
	pthread_mutex_unlock(&L);
	*out = c;
	if (pthread_create(&c->init, NULL, begin, c)) return SYSTEM;
	if (cfg && cfg->blocking == 0) return IN_PROGRESS;
	pthread_join(c->init, NULL);
	c->init = 0;
	return c->state;
}
result ncclCommInitRankConfig(struct comm **out, int n, unique_id id, int rank, config *cfg) { return init(out, n, rank, &id, cfg); }
#ifndef NO_SCALABLE
result ncclCommInitRankScalable(struct comm **out, int n, int rank, int ids, unique_id *id, config *cfg) {
	return ids < 1 ? INVALID_ARGUMENT : init(out, n, rank, id, cfg);
}
#endif
result ncclCommGetAsyncError(struct comm *c, result *r) { *r = c->state; remote_errors += *r == REMOTE; return SUCCESS; }

enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE, SEND, RECV };
struct call {
	struct comm *c; int kind; char *dst; const char *src; size_t n; int type, op, root, size; uint64_t number;
	stream s; struct call *next; // in a group
};

// file is the name of the message with a number between two ranks.
static void file(struct comm *c, char name[160], int from, int to, uint64_t number) {
	snprintf(name, 160, "%s-%d-%d-%llu", c->name, from, to, (unsigned long long)number);
}

static result end(struct comm *c) {
	if (c->init) pthread_join(c->init, NULL);
	while (c->pending && !fakecuda_failed(c->ctx)) nap(); // work of streams
	char name[128];
	for (int r = 0; r < c->n; r++)
		if (r == c->rank || (c->aborted && gone(c, r))) {
			snprintf(name, sizeof name, "%s-%d", c->name, r);
			shm_unlink(name);
		}
	if (++c->board->left == c->n || c->aborted) shm_unlink(c->name);
	for (int r = 0; r < c->n; r++)
		for (uint64_t i = 0; i < c->sent[r]; i++) {
			char path[160];
			file(c, path, c->rank, r, i);
			if (c->aborted || r == c->rank) shm_unlink(path);
		}
	munmap(c->board, sizeof *c->board);
	pthread_mutex_lock(&L);
	for (struct comm **p = &comms; *p; p = &(*p)->following) if (*p == c) { *p = c->following; break; }
	pthread_mutex_unlock(&L);
	free(c);
	return SUCCESS;
}
result ncclCommAbort(struct comm *c) { c->aborted = true; return end(c); }
result ncclCommDestroy(struct comm *c) { return end(c); }

#define COMBINE(T) do { T *a = (T *)acc; const T *b = (const T *)in; for (size_t i = 0; i < n; i++) switch (op) { \
	case 0: a[i] += b[i]; break; case 1: a[i] *= b[i]; break; \
	case 2: a[i] = a[i] > b[i] ? a[i] : b[i]; break; case 3: a[i] = a[i] < b[i] ? a[i] : b[i]; break; } } while (0)
static void combine(int type, int op, char *acc, const char *in, size_t n) {
	switch (type) {
	case 0: COMBINE(int8_t); break;
	case 1: COMBINE(uint8_t); break;
	case 2: COMBINE(int32_t); break;
	case 3: COMBINE(uint32_t); break;
	case 4: COMBINE(int64_t); break;
	case 5: COMBINE(uint64_t); break;
	case 7: COMBINE(float); break;
	case 8: COMBINE(double); break;
	}
}

// shared maps the file of a rank, for bytes of its input.
static char *shared(struct comm *c, int rank, size_t bytes, bool write) {
	char name[128];
	snprintf(name, sizeof name, "%s-%d", c->name, rank);
	int fd = shm_open(name, write ? O_RDWR | O_CREAT | O_CLOEXEC : O_RDONLY | O_CLOEXEC, 0600);
	if (fd < 0 && !write) return NULL; // that rank has aborted the communicator
	if (fd < 0 || (write && ftruncate(fd, bytes))) abort();
	char *p = mmap(NULL, bytes, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED) abort();
	return p;
}

// message writes or reads a message. Its file appears when it is complete.
static void message(struct call *k) {
	struct comm *c = k->c;
	char name[160], part[168], from[180], to[180];
	size_t n = k->n * k->size;
	if (k->kind == SEND) {
		file(c, name, c->rank, k->root, k->number);
		snprintf(part, sizeof part, "%s-part", name);
		int fd = shm_open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		for (size_t at = 0; at < n;) {
			ssize_t w = write(fd, k->src + at, n - at);
			if (w < 0) abort();
			at += w;
		}
		close(fd);
		snprintf(from, sizeof from, "/dev/shm%s", part);
		snprintf(to, sizeof to, "/dev/shm%s", name);
		if (rename(from, to)) abort();
		return;
	}
	file(c, name, k->root, c->rank, k->number);
	int fd;
	for (int i = 1; (fd = shm_open(name, O_RDONLY | O_CLOEXEC, 0)) < 0; i++) {
		if (c->aborted) return;
		nap();
		if (i % 10 == 0 && gone(c, k->root)) c->state = REMOTE;
	}
	for (size_t at = 0; at < n;) {
		ssize_t r = read(fd, k->dst + at, n - at);
		if (r <= 0) abort(); // the sender has sent fewer bytes
		at += r;
	}
	close(fd);
	shm_unlink(name);
}

static void perform(void *p) {
	struct call *k = p;
	struct comm *c = k->c;
	if (c->aborted) goto out;
	if (k->kind == SEND || k->kind == RECV) { message(k); goto out; }
	size_t bytes = k->n * k->size, in = k->kind == REDUCE_SCATTER ? bytes * c->n : bytes;
	char *mine = shared(c, c->rank, in, true);
	if (k->src) memcpy(mine, k->src, in);
	munmap(mine, in);
	if (!meet(c)) goto out;
	bool result = !((k->kind == REDUCE) && c->rank != k->root);
	size_t from = k->kind == REDUCE_SCATTER ? bytes * c->rank : 0;
	for (int r = 0; r < c->n && result; r++) {
		if (k->kind == BROADCAST && r != k->root) continue;
		char *q = shared(c, r, in, false);
		if (!q) {
			c->state = REMOTE;
			while (!c->aborted) nap();
			goto out;
		}
		if (k->kind == ALL_GATHER) memcpy(k->dst + r * bytes, q, bytes);
		else if (k->kind == BROADCAST || r == 0) memcpy(k->dst, q + from, bytes);
		else combine(k->type, k->op, k->dst, q + from, k->n);
		munmap(q, in);
	}
	meet(c);
out:
	c->pending--;
	free(k);
}

static char *memory(const void *p, size_t bytes) {
	size_t n = 0;
	char *base = fakecuda_find((uint64_t)p, &n), *q = (char *)((uint64_t)p & ~0x1000000000000000ull);
	return base && bytes <= n && (size_t)(q - base) <= n - bytes ? q : NULL;
}

// The calls of a group of this thread begin when it ends.
static __thread int depth;
static __thread struct call *first, **next;

static result launch(struct call *q) {
	struct comm *c = q->c;
	c->pending++;
	if (cuLaunchHostFunc(q->s, perform, q)) { c->pending--; free(q); return fail(UNHANDLED_CUDA, "fake: stream"); }
	return SUCCESS;
}

static result add(struct comm *c, int kind, const void *src, void *dst, size_t n, int type, int op, int root, stream s) {
	static const int sizes[] = {1, 1, 4, 4, 8, 8, 0, 4, 8};
	if (type < 0 || type > 8 || !sizes[type] || op < 0 || op > 3 || root < 0 || root >= c->n) return fail(INVALID_ARGUMENT, "fake: type, op or root");
	if (c->state == REMOTE) return fail(REMOTE, "fake: a connection has failed");
	if (c->state != SUCCESS) return fail(INVALID_USAGE, "fake: the communicator is not ready");
	if (n == 0) return SUCCESS;
	size_t bytes = n * sizes[type];
	bool gives = kind != RECV && (kind != BROADCAST || c->rank == root), gets = kind != SEND && (kind != REDUCE || c->rank == root);
	struct call k = {.c = c, .kind = kind, .n = n, .type = type, .op = op, .root = root, .size = sizes[type], .s = s};
	if (gives && !(k.src = memory(src, kind == REDUCE_SCATTER ? bytes * c->n : bytes))) return fail(INVALID_ARGUMENT, "fake: sendbuff is not memory of a device");
	if (gets && !(k.dst = memory(dst, kind == ALL_GATHER ? bytes * c->n : bytes))) return fail(INVALID_ARGUMENT, "fake: recvbuff is not memory of a device");
	if (kind == SEND) k.number = c->sent[root]++;
	if (kind == RECV) k.number = c->received[root]++;
	struct call *q = malloc(sizeof *q);
	*q = k;
	if (!depth) return launch(q);
	*next = q;
	next = &q->next;
	return SUCCESS;
}

result ncclReduceScatter(const void *a, void *b, size_t n, int t, int op, struct comm *c, stream s) { return add(c, REDUCE_SCATTER, a, b, n, t, op, 0, s); }
result ncclAllGather(const void *a, void *b, size_t n, int t, struct comm *c, stream s) { return add(c, ALL_GATHER, a, b, n, t, 0, 0, s); }
result ncclBroadcast(const void *a, void *b, size_t n, int t, int root, struct comm *c, stream s) { return add(c, BROADCAST, a, b, n, t, 0, root, s); }
result ncclReduce(const void *a, void *b, size_t n, int t, int op, int root, struct comm *c, stream s) { return add(c, REDUCE, a, b, n, t, op, root, s); }
#ifndef NO_SEND
result ncclSend(const void *a, size_t n, int t, int peer, struct comm *c, stream s) { return add(c, SEND, a, NULL, n, t, 0, peer, s); }
result ncclRecv(void *b, size_t n, int t, int peer, struct comm *c, stream s) { return add(c, RECV, NULL, b, n, t, 0, peer, s); }
#endif
result ncclGroupStart(void) {
	if (!depth++) { first = NULL; next = &first; }
	return SUCCESS;
}
// Receives are last: they wait for sends of others, which may wait for nothing.
result ncclGroupEnd(void) {
	if (depth == 0) return fail(INVALID_USAGE, "fake: ncclGroupEnd without ncclGroupStart");
	if (--depth > 0) return SUCCESS;
	groups++;
	result r = SUCCESS;
	for (int receives = 0; receives < 2; receives++)
		for (struct call **p = &first; *p;) {
			struct call *q = *p;
			if ((q->kind == RECV) != receives) { p = &q->next; continue; }
			*p = q->next;
			if (r == SUCCESS) r = launch(q); else free(q);
		}
	return r;
}
