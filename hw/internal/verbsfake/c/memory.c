// Protection domains, registrations and memory windows. Memory of a GPU is that of the fake CUDA driver of the process. Writes to it
// are not visible before a flush (cuFlushGPUDirectRDMAWrites), as on a GPU that does not order the writes of network cards.
#include "fake.h"
#include <dlfcn.h>
#include <sys/mman.h>

#define DEVICE_BIT 0x1000000000000000ull // of addresses of the fake CUDA driver

// A write to memory of a GPU that is not visible yet.
struct posted { struct mr *mr; uint64_t addr; size_t n; char *data; struct posted *next; };

struct mw *mws;
static struct mr **mrs; // by the index in their keys; NULL after deregistration
static int mrs_n;
static struct posted *posted, **posted_last = &posted;
static bool refuse_dmabuf, refuse_peer;
static int accesses; // the flags of all registrations so far
static uint64_t device_read, device_written, strays;

// is_device reports whether an address is in an allocation of a GPU.
static bool is_device(uint64_t p) {
	void *(*find)(uint64_t, size_t *) = (void *(*)(uint64_t, size_t *))dlsym(RTLD_DEFAULT, "fakecuda_find");
	size_t n;
	return p & DEVICE_BIT && find && find(p, &n);
}

struct mr *local(uint32_t lkey) {
	struct mr *m = lkey >> 8 < (uint32_t)mrs_n ? mrs[lkey >> 8] : NULL;
	return m && m->lkey == lkey ? m : NULL;
}

char *access_memory(struct mr *m, uint64_t addr, size_t n) {
	if (!m || !inside(addr, n, m->addr, m->length)) return NULL;
	switch (m->kind) {
	case HOST: return (char *)(uintptr_t)addr;
	case DMABUF: return m->first + (addr - m->addr);
	case PEER: break;
	}
	if (!is_device(addr)) { // The memory was freed.
		strays++;
		return NULL;
	}
	return (char *)(uintptr_t)(addr & ~DEVICE_BIT);
}

// settle performs the writes to GPUs.
static void settle(void) {
	for (struct posted *p; (p = posted); free(p)) {
		char *to = access_memory(p->mr, p->addr, p->n);
		if (to) memcpy(to, p->data, p->n);
		posted = p->next;
		free(p->data);
	}
	posted_last = &posted;
}

void loaded(struct mr *m, size_t n) {
	if (m->kind == HOST || n == 0) return;
	settle(); // A read follows earlier writes.
	device_read += n;
}

void stored(struct mr *m, uint64_t addr, char *to, const char *from, size_t n) {
	if (m->kind == HOST) {
		memcpy(to, from, n);
		return;
	}
	device_written += n;
	struct posted *p = calloc(1, sizeof *p);
	*p = (struct posted){m, addr, n, memcpy(malloc(n + 1), from, n), NULL};
	*posted_last = p;
	posted_last = &p->next;
}

// fakeverbs_flush is called by the fake CUDA driver.
EXPORT void fakeverbs_flush(void) {
	pthread_mutex_lock(&lock);
	settle();
	pthread_mutex_unlock(&lock);
}

// fakeverbs_refuse lets registrations of memory of GPUs fail, by either method.
EXPORT void fakeverbs_refuse(int dmabuf, int peer) {
	pthread_mutex_lock(&lock);
	refuse_dmabuf = dmabuf;
	refuse_peer = peer;
	pthread_mutex_unlock(&lock);
}

static uint64_t value(const uint64_t *v) {
	pthread_mutex_lock(&lock);
	uint64_t n = *v;
	pthread_mutex_unlock(&lock);
	return n;
}

// Bytes of memory of GPUs that were read and written, and accesses to memory of GPUs that was freed.
EXPORT uint64_t fakeverbs_device_read(void) { return value(&device_read); }
EXPORT uint64_t fakeverbs_device_written(void) { return value(&device_written); }
EXPORT uint64_t fakeverbs_strays(void) { return value(&strays); }

// fakeverbs_registered returns the number of registrations of memory of GPUs.
EXPORT int fakeverbs_registered(void) {
	pthread_mutex_lock(&lock);
	int n = 0;
	for (int i = 0; i < mrs_n; i++) n += mrs[i] && mrs[i]->kind != HOST;
	pthread_mutex_unlock(&lock);
	return n;
}

// fakeverbs_accesses returns the flags that any registration so far had.
EXPORT int fakeverbs_accesses(void) {
	pthread_mutex_lock(&lock);
	int flags = accesses;
	pthread_mutex_unlock(&lock);
	return flags;
}

EXPORT struct pd *ibv_alloc_pd(struct context *c) {
	if (call_fails("ibv_alloc_pd")) return NULL;
	struct pd *p = calloc(1, sizeof *p);
	p->context = c;
	counted(1);
	return p;
}

// ibv_dealloc_pd refuses a domain that has registrations or windows.
EXPORT int ibv_dealloc_pd(struct pd *p) {
	bool used = false;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < mrs_n; i++) used = used || (mrs[i] && mrs[i]->pd == p);
	for (struct mw *w = mws; w; w = w->next) used = used || w->pd == p;
	if (!used) live--;
	pthread_mutex_unlock(&lock);
	if (used) return EBUSY;
	free(p);
	return 0;
}

static struct mr *add(struct mr m) {
	struct mr *p = malloc(sizeof *p);
	pthread_mutex_lock(&lock);
	if (mrs_n % 1024 == 0) mrs = realloc(mrs, (mrs_n + 1024) * sizeof *mrs);
	m.context = m.pd->context;
	m.lkey = m.rkey = (uint32_t)mrs_n << 8 | 0x5a;
	*p = m;
	mrs[mrs_n++] = p;
	accesses |= m.access;
	live++;
	pthread_mutex_unlock(&lock);
	return p;
}

EXPORT struct mr *ibv_reg_mr(struct pd *pd, void *addr, size_t n, int access) {
	if (call_fails("ibv_reg_mr")) return NULL;
	uint64_t a = (uintptr_t)addr;
	enum kind kind = a & DEVICE_BIT ? PEER : HOST;
	if (kind == PEER) {
		pthread_mutex_lock(&lock);
		bool refused = refuse_peer || !is_device(a);
		pthread_mutex_unlock(&lock);
		if (refused) {
			errno = EFAULT;
			return NULL;
		}
	}
	return add((struct mr){.pd = pd, .addr = a, .length = n, .kind = kind, .access = access});
}

// ibv_reg_dmabuf_mr maps the file of a range, which begins at the position of the file.
EXPORT struct mr *ibv_reg_dmabuf_mr(struct pd *pd, uint64_t offset, size_t n, uint64_t iova, int fd, int access) {
	if (call_fails("ibv_reg_dmabuf_mr")) return NULL;
	pthread_mutex_lock(&lock);
	bool refused = refuse_dmabuf;
	pthread_mutex_unlock(&lock);
	if (refused) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	off_t begin = lseek(fd, 0, SEEK_CUR);
	if (begin < 0) {
		errno = EBADF;
		return NULL;
	}
	uint64_t first = begin + offset, page = first & ~4095ull;
	size_t mapped = first - page + n;
	char *map = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, page);
	if (map == MAP_FAILED) return NULL;
	return add((struct mr){.pd = pd, .addr = iova, .length = n, .kind = DMABUF, .access = access,
		.map = map, .mapped = mapped, .first = map + (first - page)});
}

// ibv_dereg_mr refuses memory with a bound window, as devices do.
EXPORT int ibv_dereg_mr(struct mr *m) {
	pthread_mutex_lock(&lock);
	for (struct mw *w = mws; w; w = w->next)
		if (w->qp && w->mr == m) {
			pthread_mutex_unlock(&lock);
			return EBUSY;
		}
	settle();
	mrs[m->lkey >> 8] = NULL;
	live--;
	pthread_mutex_unlock(&lock);
	if (m->map) munmap(m->map, m->mapped);
	free(m);
	return 0;
}

struct mw *alloc_mw(struct pd *pd, int type) {
	if (call_fails("ibv_alloc_mw")) return NULL;
	static uint32_t keys = 1;
	struct mw *w = calloc(1, sizeof *w);
	pthread_mutex_lock(&lock);
	*w = (struct mw){.context = pd->context, .pd = pd, .rkey = keys++ << 8, .type = type, .next = mws};
	mws = w;
	live++;
	pthread_mutex_unlock(&lock);
	return w;
}

int dealloc_mw(struct mw *w) {
	pthread_mutex_lock(&lock);
	struct mw **at = &mws;
	while (*at != w) at = &(*at)->next;
	*at = w->next;
	live--;
	pthread_mutex_unlock(&lock);
	free(w);
	return 0;
}
