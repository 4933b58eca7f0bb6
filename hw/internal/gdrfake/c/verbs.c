// A libibverbs for tests, with one device. All its queue pairs are in this process. It follows the documented behaviour where
// programs go wrong: a message needs a posted buffer, keys and windows are checked for each access, a refused access fails
// both queue pairs, and the requests of a failed one are flushed.
//
// It accesses memory of devices of the fake CUDA driver, by dma-buf or by address. Its writes there are not visible before a
// flush (cuFlushGPUDirectRDMAWrites), as on a GPU that does not order such writes. Functions fakeverbs_* control it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICE_BIT 0x1000000000000000ull // of addresses of the fake CUDA driver
#define EXPORT __attribute__((visibility("default")))

enum { ACCESS_BIND = 16 };
enum { OP_WRITE = 0, OP_SEND_IMM = 3, OP_INVALIDATE = 7, OP_BIND = 8 };
enum { DONE_SEND = 0, DONE_WRITE = 1, DONE_BIND = 5, DONE_INVALIDATE = 6, DONE_RECEIVE = 128 };
enum { SUCCESS = 0, LOCAL_PROTECTION = 4, FLUSHED = 5, BIND_ERROR = 6, REMOTE_ACCESS = 10, RETRIES = 12, RNR = 13 };
enum { RTR = 2, RTS = 3, FAILED = 6 };
enum { HOST, DMABUF, PEER };

struct context { void *device; void *ops[32]; int cmd_fd, async_fd, vectors; pthread_mutex_t mutex; void *abi; int async_write; };
struct pd { struct context *context; uint32_t handle; };
struct mr {
	struct context *context; struct pd *pd; uint64_t addr, length; uint32_t handle, lkey, rkey;
	int kind, access; char *map; size_t mapped; char *first; struct mr *next; // the public part ends before kind
};
struct mw {
	struct context *context; struct pd *pd; uint32_t rkey, handle, type;
	bool bound; struct qp *qp; struct mr *mr; uint64_t addr, length; struct mw *next;
};
struct channel { struct context *context; int fd, refcnt, write_fd; };
struct wc { uint64_t id; uint32_t status, opcode, vendor, length, imm, qp, source, flags; uint8_t rest[8]; };
struct done { struct wc wc; struct done *next; };
struct cq { struct channel *channel; bool armed; struct done *first, **last; };
struct sge { uint64_t addr; uint32_t length, lkey; };
struct send_wr {
	uint64_t id; struct send_wr *next; struct sge *list; int sges; uint32_t opcode, flags, imm;
	uint64_t remote; uint32_t rkey; uint8_t rest[28];
	struct mw *mw; uint32_t mw_key, pad; struct mr *mr; uint64_t addr, length; uint32_t access, pad2;
};
struct recv_wr { uint64_t id; struct recv_wr *next; struct sge *list; int sges; };
struct request { struct send_wr wr; struct sge sge; char *inlined; struct request *next; };
struct buffer { uint64_t id; struct sge sge; struct buffer *next; };
struct qp {
	struct context *context; void *user; struct pd *pd; struct cq *send_cq, *recv_cq; void *srq;
	uint32_t handle, number, state, type; uint8_t rest[96];
	uint32_t peer; struct request *first, **last; struct buffer *buffers, **buffers_last; struct qp *next;
};
struct init_attr { void *user; struct cq *send_cq, *recv_cq; void *srq; uint32_t cap[5], type; int all; };
struct posted { struct mr *mr; uint64_t addr; size_t n; char *data; struct posted *next; };

static pthread_mutex_t V = PTHREAD_MUTEX_INITIALIZER;
static struct mr *mrs;
static struct mw *mws;
static struct qp *qps;
static struct posted *posted, **posted_last = &posted;
static uint32_t last_key = 1, last_qp = 16;
static bool held, refuse_dmabuf, refuse_peer;
static uint64_t device_read, device_written, strays;
static int live;

static void *find_device(uint64_t p) {
	void *(*find)(uint64_t, size_t *) = (void *(*)(uint64_t, size_t *))dlsym(RTLD_DEFAULT, "fakecuda_find");
	size_t n;
	return find ? find(p, &n) : NULL;
}

// at returns the memory of n bytes of a registration, or NULL.
static char *at(struct mr *m, uint64_t addr, size_t n) {
	if (!m || addr < m->addr || n > m->length || addr - m->addr > m->length - n) return NULL;
	switch (m->kind) {
	case HOST: return (char *)(uintptr_t)addr;
	case DMABUF: return m->first + (addr - m->addr);
	}
	if (!find_device(addr)) { strays++; return NULL; } // the memory was freed
	return (char *)(uintptr_t)(addr & ~DEVICE_BIT);
}

// settle performs the writes to devices.
static void settle(void) {
	while (posted) {
		struct posted *p = posted;
		char *to = at(p->mr, p->addr, p->n);
		if (to) memcpy(to, p->data, p->n);
		posted = p->next;
		free(p->data);
		free(p);
	}
	posted_last = &posted;
}

static struct mr *local(uint32_t key) {
	for (struct mr *m = mrs; m; m = m->next) if (m->lkey == key) return m;
	return NULL;
}
static struct qp *find_qp(uint32_t number) {
	for (struct qp *q = qps; q; q = q->next) if (q->number == number) return q;
	return NULL;
}

static void complete(struct cq *cq, struct wc wc) {
	struct done *d = calloc(1, sizeof *d);
	d->wc = wc;
	*cq->last = d;
	cq->last = &d->next;
	if (cq->armed) {
		cq->armed = false;
		uint64_t event = (uintptr_t)cq;
		if (write(cq->channel->write_fd, &event, sizeof event) < 0) abort();
	}
}

static void drop_request(struct request *r) { free(r->inlined); free(r); }

// fail puts a queue pair into the error state.
static void fail(struct qp *q) {
	q->state = FAILED;
	for (struct request *r; (r = q->first);) {
		complete(q->send_cq, (struct wc){.id = r->wr.id, .status = FLUSHED, .qp = q->number});
		q->first = r->next;
		drop_request(r);
	}
	q->last = &q->first;
	for (struct buffer *b; (b = q->buffers);) {
		complete(q->recv_cq, (struct wc){.id = b->id, .status = FLUSHED, .opcode = DONE_RECEIVE, .qp = q->number});
		q->buffers = b->next;
		free(b);
	}
	q->buffers_last = &q->buffers;
}

// remote returns the registration that a peer may write under a key.
static struct mr *remote(struct qp *peer, uint32_t key, uint64_t addr, size_t n) {
	for (struct mw *w = mws; w; w = w->next)
		if (w->bound && w->rkey == key && w->qp == peer && addr >= w->addr && n <= w->length && addr - w->addr <= w->length - n) return w->mr;
	return NULL;
}

// perform does a request and returns its status.
static uint32_t perform(struct qp *q, struct request *r, uint32_t *opcode) {
	struct send_wr *w = &r->wr;
	struct qp *peer = find_qp(q->peer);
	char *from = NULL;
	size_t n = w->sges ? r->sge.length : 0;
	if (w->opcode == OP_WRITE || w->opcode == OP_SEND_IMM) {
		if (!peer || (peer->state != RTR && peer->state != RTS)) return RETRIES;
		struct mr *m = local(r->sge.lkey);
		if (n && m && m->kind != HOST) { settle(); device_read += n; } // a read follows earlier writes
		from = r->inlined ? r->inlined : n ? at(m, r->sge.addr, n) : NULL;
		if (n && !from) return LOCAL_PROTECTION;
	}
	switch (w->opcode) {
	case OP_WRITE: {
		*opcode = DONE_WRITE;
		struct mr *m = remote(peer, w->rkey, w->remote, n);
		char *to = m ? at(m, w->remote, n) : NULL;
		if (!to) { fail(peer); return REMOTE_ACCESS; }
		if (m->kind == HOST) { memcpy(to, from, n); return SUCCESS; }
		device_written += n;
		struct posted *p = calloc(1, sizeof *p);
		*p = (struct posted){m, w->remote, n, memcpy(malloc(n), from, n), NULL};
		*posted_last = p;
		posted_last = &p->next;
		return SUCCESS;
	}
	case OP_SEND_IMM: {
		*opcode = DONE_SEND;
		struct buffer *b = peer->buffers;
		if (!b) return RNR;
		char *to = at(local(b->sge.lkey), b->sge.addr, b->sge.length);
		if (!to || n > b->sge.length) { fail(peer); return REMOTE_ACCESS; }
		memcpy(to, from, n);
		if (!(peer->buffers = b->next)) peer->buffers_last = &peer->buffers;
		complete(peer->recv_cq, (struct wc){.id = b->id, .opcode = DONE_RECEIVE, .length = n, .imm = w->imm, .qp = peer->number, .flags = 2});
		free(b);
		return SUCCESS;
	}
	case OP_BIND:
		*opcode = DONE_BIND;
		if (w->mw->bound || !(w->mr->access & ACCESS_BIND)) return BIND_ERROR;
		w->mw->rkey = w->mw_key;
		w->mw->bound = true;
		w->mw->qp = q;
		w->mw->mr = w->mr;
		w->mw->addr = w->addr;
		w->mw->length = w->length;
		return SUCCESS;
	case OP_INVALIDATE:
		*opcode = DONE_INVALIDATE;
		for (struct mw *m = mws; m; m = m->next)
			if (m->bound && m->rkey == w->imm && m->qp == q) { m->bound = false; return SUCCESS; }
		return BIND_ERROR;
	}
	return LOCAL_PROTECTION;
}

// process does the requests of a queue pair in their order. A remote write waits while writes are held, and the requests
// behind it too.
static void process(struct qp *q) {
	while (q->first && q->state == RTS && !(held && q->first->wr.opcode == OP_WRITE)) {
		struct request *r = q->first;
		if (!(q->first = r->next)) q->last = &q->first;
		uint32_t opcode = 0;
		uint32_t status = perform(q, r, &opcode);
		complete(q->send_cq, (struct wc){.id = r->wr.id, .status = status, .opcode = opcode, .qp = q->number});
		drop_request(r);
		if (status) fail(q);
	}
}

// Control.

EXPORT void fakeverbs_flush(void) { pthread_mutex_lock(&V); settle(); pthread_mutex_unlock(&V); }
EXPORT void fakeverbs_hold(int on) {
	pthread_mutex_lock(&V);
	held = on;
	for (struct qp *q = qps; q; q = q->next) process(q);
	pthread_mutex_unlock(&V);
}
// fakeverbs_held returns the number of remote writes that wait.
EXPORT int fakeverbs_held(void) {
	pthread_mutex_lock(&V);
	int n = 0;
	for (struct qp *q = qps; q; q = q->next) n += held && q->first && q->first->wr.opcode == OP_WRITE;
	pthread_mutex_unlock(&V);
	return n;
}
EXPORT void fakeverbs_break(void) {
	pthread_mutex_lock(&V);
	for (struct qp *q = qps; q; q = q->next) if (q->state == RTS) fail(q);
	pthread_mutex_unlock(&V);
}
EXPORT void fakeverbs_refuse(int dmabuf, int peer) { pthread_mutex_lock(&V); refuse_dmabuf = dmabuf; refuse_peer = peer; pthread_mutex_unlock(&V); }
EXPORT uint64_t fakeverbs_device_read(void) { pthread_mutex_lock(&V); uint64_t n = device_read; pthread_mutex_unlock(&V); return n; }
EXPORT uint64_t fakeverbs_device_written(void) { pthread_mutex_lock(&V); uint64_t n = device_written; pthread_mutex_unlock(&V); return n; }
EXPORT uint64_t fakeverbs_strays(void) { pthread_mutex_lock(&V); uint64_t n = strays; pthread_mutex_unlock(&V); return n; }
// fakeverbs_registered returns the number of registrations of memory of devices.
EXPORT int fakeverbs_registered(void) {
	pthread_mutex_lock(&V);
	int n = 0;
	for (struct mr *m = mrs; m; m = m->next) n += m->kind != HOST;
	pthread_mutex_unlock(&V);
	return n;
}
EXPORT int fakeverbs_live(void) { pthread_mutex_lock(&V); int n = live; pthread_mutex_unlock(&V); return n; }

// The library.

static struct mw *alloc_mw(struct pd *pd, int type) {
	struct mw *w = calloc(1, sizeof *w);
	pthread_mutex_lock(&V);
	*w = (struct mw){.context = pd->context, .pd = pd, .rkey = last_key++ << 8, .type = type, .next = mws};
	mws = w;
	live++;
	pthread_mutex_unlock(&V);
	return w;
}
static int dealloc_mw(struct mw *w) {
	pthread_mutex_lock(&V);
	for (struct mw **p = &mws; *p; p = &(*p)->next) if (*p == w) { *p = w->next; break; }
	live--;
	pthread_mutex_unlock(&V);
	free(w);
	return 0;
}
static int poll_cq(struct cq *cq, int most, struct wc *out) {
	pthread_mutex_lock(&V);
	int n = 0;
	for (struct done *d; n < most && (d = cq->first); n++) {
		out[n] = d->wc;
		if (!(cq->first = d->next)) cq->last = &cq->first;
		free(d);
	}
	pthread_mutex_unlock(&V);
	return n;
}
static int req_notify_cq(struct cq *cq, int solicited) { pthread_mutex_lock(&V); cq->armed = true; pthread_mutex_unlock(&V); return 0; }
static int post_send(struct qp *q, struct send_wr *w, struct send_wr **bad) {
	pthread_mutex_lock(&V);
	struct request *r = calloc(1, sizeof *r);
	r->wr = *w;
	if (w->sges) r->sge = w->list[0];
	if (w->sges && w->flags & 8) r->inlined = memcpy(malloc(r->sge.length + 1), (void *)(uintptr_t)r->sge.addr, r->sge.length);
	if (q->state == FAILED) {
		complete(q->send_cq, (struct wc){.id = w->id, .status = FLUSHED, .qp = q->number});
		drop_request(r);
	} else {
		*q->last = r;
		q->last = &r->next;
		process(q);
	}
	pthread_mutex_unlock(&V);
	return 0;
}
static int post_recv(struct qp *q, struct recv_wr *w, struct recv_wr **bad) {
	pthread_mutex_lock(&V);
	if (q->state == FAILED) {
		complete(q->recv_cq, (struct wc){.id = w->id, .status = FLUSHED, .opcode = DONE_RECEIVE, .qp = q->number});
	} else {
		struct buffer *b = calloc(1, sizeof *b);
		b->id = w->id;
		b->sge = w->list[0];
		*q->buffers_last = b;
		q->buffers_last = &b->next;
	}
	pthread_mutex_unlock(&V);
	return 0;
}

static int the_device;
EXPORT void **ibv_get_device_list(int *n) { void **list = calloc(2, sizeof *list); list[0] = &the_device; *n = 1; return list; }
EXPORT void ibv_free_device_list(void **list) { free(list); }
EXPORT const char *ibv_get_device_name(void *d) { return "fake0"; }
EXPORT struct context *ibv_open_device(void *d) {
	int fds[2];
	if (pipe2(fds, O_CLOEXEC)) return NULL;
	struct context *c = calloc(1, sizeof *c);
	c->device = d;
	c->async_fd = fds[0];
	c->async_write = fds[1];
	c->ops[7] = alloc_mw;
	c->ops[9] = dealloc_mw;
	c->ops[11] = poll_cq;
	c->ops[12] = req_notify_cq;
	c->ops[25] = post_send;
	c->ops[26] = post_recv;
	return c;
}
EXPORT int ibv_close_device(struct context *c) { close(c->async_fd); close(c->async_write); free(c); return 0; }
EXPORT int ibv_query_device(struct context *c, void *attr) {
	memset(attr, 0, 232);
	char *a = attr;
	*(int *)(a + 112) = 4096;      // max_qp_wr
	*(uint32_t *)(a + 116) = 1 << 24; // memory windows of type 2B
	*(int *)(a + 132) = 8192;      // max_cqe
	*(int *)(a + 176) = 1 << 16;   // max_mw
	a[227] = 1;                    // ports
	return 0;
}
EXPORT int ibv_query_port(struct context *c, uint8_t port, void *attr) {
	memset(attr, 0, 52);
	char *a = attr;
	*(uint32_t *)a = 4;        // active
	*(uint32_t *)(a + 8) = 3;  // MTU 1024
	*(int *)(a + 12) = 1;      // GIDs
	a[46] = 2;                 // Ethernet
	return 0;
}
EXPORT int _ibv_query_gid_ex(struct context *c, uint32_t port, uint32_t index, void *entry, uint32_t flags, size_t size) {
	static const uint8_t gid[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
	char *e = entry;
	memcpy(e, gid, 16);
	*(uint32_t *)(e + 16) = index;
	*(uint32_t *)(e + 20) = port;
	*(uint32_t *)(e + 24) = 2; // RoCE v2
	*(uint32_t *)(e + 28) = 1;
	return 0;
}
EXPORT struct pd *ibv_alloc_pd(struct context *c) { struct pd *p = calloc(1, sizeof *p); p->context = c; return p; }
EXPORT int ibv_dealloc_pd(struct pd *pd) {
	pthread_mutex_lock(&V);
	bool used = false;
	for (struct mr *m = mrs; m; m = m->next) used = used || m->pd == pd;
	pthread_mutex_unlock(&V);
	if (used) return EBUSY;
	free(pd);
	return 0;
}
static struct mr *add_mr(struct mr m) {
	struct mr *p = malloc(sizeof *p);
	pthread_mutex_lock(&V);
	m.lkey = m.rkey = last_key++ << 8 | 0x80;
	m.next = mrs;
	*p = m;
	mrs = p;
	live++;
	pthread_mutex_unlock(&V);
	return p;
}
EXPORT struct mr *ibv_reg_mr(struct pd *pd, void *addr, size_t n, int access) {
	uint64_t a = (uintptr_t)addr;
	int kind = a & DEVICE_BIT ? PEER : HOST;
	if (kind == PEER && (refuse_peer || !find_device(a))) { errno = EFAULT; return NULL; }
	return add_mr((struct mr){.context = pd->context, .pd = pd, .addr = a, .length = n, .kind = kind, .access = access});
}
// ibv_reg_dmabuf_mr maps the file of a range, which begins at the position of the file.
EXPORT struct mr *ibv_reg_dmabuf_mr(struct pd *pd, uint64_t offset, size_t n, uint64_t iova, int fd, int access) {
	if (refuse_dmabuf) { errno = EOPNOTSUPP; return NULL; }
	off_t begin = lseek(fd, 0, SEEK_CUR);
	if (begin < 0) { errno = EBADF; return NULL; }
	uint64_t first = begin + offset, page = first & ~4095ull;
	size_t mapped = first - page + n;
	char *map = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, page);
	if (map == MAP_FAILED) return NULL;
	return add_mr((struct mr){.context = pd->context, .pd = pd, .addr = iova, .length = n, .kind = DMABUF, .access = access,
		.map = map, .mapped = mapped, .first = map + (first - page)});
}
EXPORT int ibv_dereg_mr(struct mr *m) {
	pthread_mutex_lock(&V);
	for (struct mw *w = mws; w; w = w->next)
		if (w->bound && w->mr == m) { pthread_mutex_unlock(&V); return EBUSY; }
	settle();
	for (struct mr **p = &mrs; *p; p = &(*p)->next) if (*p == m) { *p = m->next; break; }
	live--;
	pthread_mutex_unlock(&V);
	if (m->map) munmap(m->map, m->mapped);
	free(m);
	return 0;
}
EXPORT struct channel *ibv_create_comp_channel(struct context *c) {
	int fds[2];
	if (pipe2(fds, O_CLOEXEC)) return NULL;
	struct channel *h = calloc(1, sizeof *h);
	*h = (struct channel){c, fds[0], 0, fds[1]};
	return h;
}
EXPORT int ibv_destroy_comp_channel(struct channel *h) { close(h->fd); close(h->write_fd); free(h); return 0; }
EXPORT struct cq *ibv_create_cq(struct context *c, int entries, void *user, struct channel *h, int vector) {
	struct cq *q = calloc(1, sizeof *q);
	q->channel = h;
	q->last = &q->first;
	return q;
}
EXPORT int ibv_destroy_cq(struct cq *q) {
	for (struct done *d; (d = q->first);) { q->first = d->next; free(d); }
	free(q);
	return 0;
}
EXPORT void ibv_ack_cq_events(struct cq *q, unsigned n) {}
EXPORT struct qp *ibv_create_qp(struct pd *pd, struct init_attr *a) {
	struct qp *q = calloc(1, sizeof *q);
	pthread_mutex_lock(&V);
	*q = (struct qp){.context = pd->context, .pd = pd, .send_cq = a->send_cq, .recv_cq = a->recv_cq, .number = last_qp++, .next = qps};
	q->last = &q->first;
	q->buffers_last = &q->buffers;
	qps = q;
	pthread_mutex_unlock(&V);
	return q;
}
EXPORT int ibv_modify_qp(struct qp *q, const uint32_t *attr, int mask) {
	pthread_mutex_lock(&V);
	if (mask & 1 << 20) q->peer = attr[7];
	if (mask & 1) {
		if (attr[0] == FAILED) fail(q); else if (q->state != FAILED) q->state = attr[0];
		process(q);
	}
	pthread_mutex_unlock(&V);
	return 0;
}
EXPORT int ibv_destroy_qp(struct qp *q) {
	pthread_mutex_lock(&V);
	for (struct mw *w = mws; w; w = w->next) if (w->qp == q) w->bound = false;
	for (struct qp **p = &qps; *p; p = &(*p)->next) if (*p == q) { *p = q->next; break; }
	for (struct request *r; (r = q->first);) { q->first = r->next; drop_request(r); }
	for (struct buffer *b; (b = q->buffers);) { q->buffers = b->next; free(b); }
	pthread_mutex_unlock(&V);
	free(q);
	return 0;
}
EXPORT const char *ibv_wc_status_str(int status) {
	static const char *const names[] = {[SUCCESS] = "success", [LOCAL_PROTECTION] = "local protection error", [FLUSHED] = "flushed",
		[BIND_ERROR] = "memory window bind error", [REMOTE_ACCESS] = "remote access error", [RETRIES] = "retries exceeded", [RNR] = "RNR retries exceeded"};
	return status >= 0 && status <= RNR && names[status] ? names[status] : "unknown";
}
EXPORT void ibv_ack_async_event(void *event) {}
