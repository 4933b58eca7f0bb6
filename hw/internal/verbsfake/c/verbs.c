// A libibverbs for tests. Its one device connects queue pairs of one process. It follows the specification of reliable
// connections where programs go wrong: requests complete in order; a queue pair that has failed flushes its requests, and messages that have
// arrived before stay in the completion queue; a message without a receive buffer and a write without a valid key end the queue pair; a
// write needs a memory window that is bound to the queue pair of the receiver; an event is delivered once for each request of one.
// Functions fakeverbs_* control it.
//
// Requests are executed when they are posted, except while fakeverbs_break holds them back.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, LOCAL_LENGTH = 1, LOCAL_PROTECTION = 4, FLUSHED = 5, REMOTE_ACCESS = 10, RETRIES = 12, RNR_RETRIES = 13 };
enum { OP_WRITE = 0, OP_SEND_IMM = 3, OP_INVALIDATE = 7, OP_BIND = 8 };
enum { DONE_SEND = 0, DONE_WRITE = 1, DONE_BIND = 5, DONE_INVALIDATE = 6, DONE_RECEIVE = 128 };
enum { RESET = 0, INIT = 1, RTR = 2, RTS = 3, ERR = 6 };
enum { FLAG_INLINE = 8, MASK_STATE = 1, MASK_DEST = 1 << 20 };
enum { EVENT_PORT_ERR = 10 };

// The structures of <infiniband/verbs.h> on 64-bit Linux, as far as the binding uses them.
struct context {
	void *device, *compat0[7], *alloc_mw, *bind_mw, *dealloc_mw, *compat1, *poll_cq, *req_notify, *compat2[12], *post_send, *post_recv, *compat3[5];
	int cmd_fd, async_fd, vectors;
	pthread_mutex_t mutex;
	void *abi_compat;
	int async_write;
};
struct pd { struct context *context; uint32_t handle; };
struct mr { struct context *context; struct pd *pd; void *addr; size_t length; uint32_t handle, lkey, rkey; };
struct mw {
	struct context *context; struct pd *pd; uint32_t rkey, handle, type;
	uint32_t key; struct qp *qp; uint64_t addr, length; // of the binding; qp is NULL without one, and handle the key of its memory
	struct mw *next;
};
struct channel { struct context *context; int fd, refs, write; };
struct wc {
	uint64_t id; uint32_t status, opcode, vendor, bytes, imm, qp, src; int flags; uint16_t pkey, slid; uint8_t sl, dlid;
};
struct cq { struct channel *channel; bool armed; struct wc *list; int n, cap; };
struct sge { uint64_t addr; uint32_t length, lkey; };
struct recv { uint64_t id; struct recv *next; struct sge *list; int n; };
struct send {
	uint64_t id; struct send *next; struct sge *list; int n; uint32_t opcode, flags, imm;
	uint64_t remote_addr; uint32_t rkey; char atomic[28];
	struct mw *mw; uint32_t mw_key; struct mr *mr; uint64_t bind_addr, bind_length; uint32_t bind_access;
};
// A held request has been posted and has not completed.
struct held { struct send w; struct sge sge; char *inlined; bool delivered; };
struct cap { uint32_t send, recv, send_sge, recv_sge, inlined; };
struct init_attr { void *context; struct cq *send, *recv; void *srq; struct cap cap; uint32_t kind; int all; };
struct attr { uint32_t state, cur, mtu, mig, qkey, rq_psn, sq_psn, dest; };
struct qp {
	struct context *context; void *user; struct pd *pd; struct cq *send_cq, *recv_cq; void *srq;
	uint32_t handle, num, state, kind; char rest[96];
	uint32_t dest; struct cap cap;
	struct recv *rq; struct sge *rq_sge; int rq_first, rq_n;
	struct held *sq; int sq_n;
	struct qp *next;
};

static pthread_mutex_t L = PTHREAD_MUTEX_INITIALIZER;
static struct qp *qps;
static struct mw *mws;
static struct mr **mrs;
static int mrs_n, live;
static uint32_t last_qp = 17;
static struct context *opened[64];

// The break: see fakeverbs_break.
static struct { long at, count; int how, lag; bool undelivered, done, stalled; } hit;

static void complete(struct cq *cq, struct wc w) {
	if (cq->n == cq->cap) abort(); // an overrun of the queue
	cq->list[cq->n++] = w;
	if (!cq->armed) return;
	cq->armed = false;
	uint64_t event = (uint64_t)(uintptr_t)cq;
	if (write(cq->channel->write, &event, sizeof event) != sizeof event) abort();
}

static uint32_t done_opcode(uint32_t opcode) {
	switch (opcode) {
	case OP_WRITE: return DONE_WRITE;
	case OP_BIND: return DONE_BIND;
	case OP_INVALIDATE: return DONE_INVALIDATE;
	}
	return DONE_SEND;
}

static struct qp *find(uint32_t num) {
	for (struct qp *q = qps; q; q = q->next)
		if (q->num == num) return q;
	return NULL;
}

// pop completes the oldest request of a send queue.
static void pop(struct qp *q, int status) {
	struct held *h = &q->sq[0];
	complete(q->send_cq, (struct wc){.id = h->w.id, .status = status, .opcode = done_opcode(h->w.opcode), .qp = q->num});
	free(h->inlined);
	memmove(q->sq, q->sq + 1, --q->sq_n * sizeof *q->sq);
}

// broken puts a queue pair into the error state. The oldest request ends with a status, and the others are flushed.
static void broken(struct qp *q, int status) {
	if (q->state == ERR) return;
	q->state = ERR;
	while (q->sq_n > 0) {
		pop(q, status);
		status = FLUSHED;
	}
	for (; q->rq_n > 0; q->rq_n--, q->rq_first = (q->rq_first + 1) % q->cap.recv)
		complete(q->recv_cq, (struct wc){.id = q->rq[q->rq_first].id, .status = FLUSHED, .opcode = DONE_RECEIVE, .qp = q->num});
}

// registered reports whether memory is registered with a local key.
static bool registered(struct sge *s) {
	struct mr *m = (s->lkey >> 8) < (uint32_t)mrs_n ? mrs[s->lkey >> 8] : NULL;
	return m && m->lkey == s->lkey && s->addr >= (uint64_t)m->addr && s->addr + s->length <= (uint64_t)m->addr + m->length;
}

// peer_of returns the peer of a queue pair, or NULL if it does not answer.
static struct qp *peer_of(struct qp *q) {
	struct qp *peer = find(q->dest);
	return peer && peer->dest == q->num && (peer->state == RTR || peer->state == RTS) ? peer : NULL;
}

// execute carries a request out at the peer. It returns the status of the request, or -1 if the peer does not answer.
static int execute(struct qp *q, struct held *h) {
	struct send *w = &h->w;
	if (w->opcode == OP_BIND) {
		w->mw->key = w->mw_key;
		w->mw->qp = q;
		w->mw->addr = w->bind_addr;
		w->mw->length = w->bind_length;
		w->mw->handle = w->mr->lkey;
		return SUCCESS;
	}
	if (w->opcode == OP_INVALIDATE) {
		for (struct mw *m = mws; m; m = m->next)
			if (m->qp == q && m->key == w->imm) {
				m->qp = NULL;
				return SUCCESS;
			}
		return LOCAL_PROTECTION;
	}
	if (w->n && !h->inlined && !registered(&h->sge)) return LOCAL_PROTECTION;
	void *from = h->inlined ? h->inlined : (void *)h->sge.addr;
	struct qp *peer = peer_of(q);
	if (!peer) return -1;
	uint32_t n = w->n ? h->sge.length : 0;
	if (w->opcode == OP_WRITE) {
		for (struct mw *m = mws; m; m = m->next)
			if (m->qp == peer && m->key == w->rkey && w->remote_addr >= m->addr && w->remote_addr + n <= m->addr + m->length) {
				memcpy((void *)w->remote_addr, from, n);
				return SUCCESS;
			}
		broken(peer, FLUSHED);
		return REMOTE_ACCESS;
	}
	if (peer->rq_n == 0) return RNR_RETRIES;
	struct sge *to = &peer->rq_sge[peer->rq_first];
	if (n > to->length || !registered(to)) {
		broken(peer, FLUSHED);
		return REMOTE_ACCESS;
	}
	memcpy((void *)to->addr, from, n);
	complete(peer->recv_cq, (struct wc){.id = peer->rq[peer->rq_first].id, .opcode = DONE_RECEIVE, .bytes = n, .imm = w->imm, .qp = peer->num});
	peer->rq_first = (peer->rq_first + 1) % peer->cap.recv;
	peer->rq_n--;
	return SUCCESS;
}

// advance executes the requests of a queue pair, and completes them unless the break holds them back.
static void advance(struct qp *q) {
	bool holds = hit.stalled || (hit.at && !hit.done && hit.count >= hit.at - hit.lag);
	for (int i = 0; i < q->sq_n && q->state == RTS;) {
		struct held *h = &q->sq[i];
		if (h->delivered && hit.done && hit.how & 1 && !peer_of(q)) return; // The acknowledgement is lost, too.
		if (!h->delivered) {
			if (holds && hit.undelivered) return;
			int status = execute(q, h);
			if (status == -1) return; // It is sent again until the queue pair fails.
			if (status != SUCCESS) {
				while (i-- > 0) pop(q, SUCCESS);
				broken(q, status);
				return;
			}
			h->delivered = true;
		}
		if (holds) i++;
		else pop(q, SUCCESS);
	}
}

// break_now breaks the connection of a queue pair. The newest request of the queue pair is the one of the break.
static void break_now(struct qp *q) {
	hit.done = true;
	struct qp *peer = peer_of(q);
	for (int i = 0; hit.how & 1 && i < q->sq_n; i++) // The requests arrive first, and their acknowledgements do not.
		if (!q->sq[i].delivered && !(q->sq[i].delivered = execute(q, &q->sq[i]) == SUCCESS)) break;
	if (hit.how / 2 != 1) broken(q, RETRIES);
	if (hit.how / 2 != 0 && peer) broken(peer, FLUSHED);
	for (struct qp *p = qps; p; p = p->next) advance(p); // The others go on.
}

// Control.

// fakeverbs_break breaks a queue pair at its n-th request from now on, of all queue pairs, or never if n is 0. how: 0 the sender's fails,
// 1 the same after the request has arrived, 2 and 3 the receiver's instead, 4 and 5 both. The requests before it, as many as lag, and all
// requests of the peers meanwhile, have not completed by then, and with undelivered not arrived.
void fakeverbs_break(long n, int how, int lag, int undelivered) {
	pthread_mutex_lock(&L);
	hit.at = n;
	hit.count = 0;
	hit.how = how;
	hit.lag = lag;
	hit.undelivered = undelivered;
	hit.done = false;
	pthread_mutex_unlock(&L);
}

// fakeverbs_stall lets requests neither arrive nor complete nor fail, as a defect of a device or driver does.
void fakeverbs_stall(int on) {
	pthread_mutex_lock(&L);
	hit.stalled = on;
	hit.undelivered = on;
	pthread_mutex_unlock(&L);
}

// fakeverbs_requests returns the number of requests since fakeverbs_break.
long fakeverbs_requests(void) {
	pthread_mutex_lock(&L);
	long n = hit.count;
	pthread_mutex_unlock(&L);
	return n;
}

// fakeverbs_trigger breaks a queue pair with a request that is held back, if there is one. It reports whether the break has happened.
int fakeverbs_trigger(void) {
	pthread_mutex_lock(&L);
	for (struct qp *q = qps; q && !hit.done; q = q->next)
		if (hit.at && q->state == RTS && q->sq_n > 0) break_now(q);
	int done = hit.done;
	pthread_mutex_unlock(&L);
	return done;
}

// fakeverbs_port_down reports to all contexts that the port is down. Queue pairs stay as they are.
void fakeverbs_port_down(void) {
	struct { uint64_t element; uint32_t kind, reserved; } event = {1, EVENT_PORT_ERR, 0};
	pthread_mutex_lock(&L);
	for (int i = 0; i < 64; i++)
		if (opened[i] && write(opened[i]->async_write, &event, sizeof event) != sizeof event) abort();
	pthread_mutex_unlock(&L);
}

// fakeverbs_live returns the number of objects.
int fakeverbs_live(void) {
	pthread_mutex_lock(&L);
	int n = live;
	pthread_mutex_unlock(&L);
	return n;
}

// Devices.

static char device_name[] = "fake0";

void **ibv_get_device_list(int *n) {
	void **list = calloc(2, sizeof *list);
	list[0] = device_name;
	*n = 1;
	return list;
}
void ibv_free_device_list(void **list) { free(list); }
const char *ibv_get_device_name(void *d) { return d; }

static int poll_cq(struct cq *cq, int n, struct wc *to) {
	pthread_mutex_lock(&L);
	if (n > cq->n) n = cq->n;
	memcpy(to, cq->list, n * sizeof *to);
	memmove(cq->list, cq->list + n, (cq->n -= n) * sizeof *cq->list);
	pthread_mutex_unlock(&L);
	return n;
}

static int req_notify(struct cq *cq, int solicited) {
	(void)solicited;
	pthread_mutex_lock(&L);
	cq->armed = true;
	pthread_mutex_unlock(&L);
	return 0;
}

static int post_send(struct qp *q, struct send *w, struct send **bad) {
	pthread_mutex_lock(&L);
	int code = 0;
	if (q->state != RTS && q->state != ERR) code = EINVAL;
	if (q->sq_n == (int)q->cap.send) code = ENOMEM;
	if (code) {
		*bad = w;
		pthread_mutex_unlock(&L);
		return code;
	}
	struct held *h = &q->sq[q->sq_n++];
	*h = (struct held){.w = *w};
	if (w->n) h->sge = w->list[0];
	if (w->flags & FLAG_INLINE) {
		h->inlined = malloc(h->sge.length + 1);
		memcpy(h->inlined, (void *)h->sge.addr, h->sge.length);
	}
	if (q->state == ERR) {
		pop(q, FLUSHED);
	} else {
		hit.count++;
		if (hit.at && !hit.done && hit.count == hit.at) break_now(q);
		else advance(q);
	}
	pthread_mutex_unlock(&L);
	return 0;
}

static int post_recv(struct qp *q, struct recv *w, struct recv **bad) {
	pthread_mutex_lock(&L);
	int code = 0;
	if (q->state == ERR) {
		complete(q->recv_cq, (struct wc){.id = w->id, .status = FLUSHED, .opcode = DONE_RECEIVE, .qp = q->num});
	} else if (q->rq_n == (int)q->cap.recv) {
		*bad = w;
		code = ENOMEM;
	} else {
		int i = (q->rq_first + q->rq_n++) % q->cap.recv;
		q->rq[i] = *w;
		q->rq_sge[i] = w->list[0];
	}
	pthread_mutex_unlock(&L);
	return code;
}

static struct mw *alloc_mw(struct pd *pd, int type) {
	static uint32_t keys = 1;
	struct mw *m = calloc(1, sizeof *m);
	pthread_mutex_lock(&L);
	*m = (struct mw){.context = pd->context, .pd = pd, .rkey = keys++ << 8, .type = type, .next = mws};
	mws = m;
	live++;
	pthread_mutex_unlock(&L);
	return m;
}

static int dealloc_mw(struct mw *m) {
	pthread_mutex_lock(&L);
	struct mw **at = &mws;
	while (*at != m) at = &(*at)->next;
	*at = m->next;
	live--;
	pthread_mutex_unlock(&L);
	free(m);
	return 0;
}

struct context *ibv_open_device(void *d) {
	int fds[2];
	if (pipe2(fds, O_CLOEXEC)) return NULL;
	struct context *c = calloc(1, sizeof *c);
	*c = (struct context){.device = d, .alloc_mw = alloc_mw, .dealloc_mw = dealloc_mw, .poll_cq = poll_cq, .req_notify = req_notify,
		.post_send = post_send, .post_recv = post_recv, .async_fd = fds[0], .async_write = fds[1]};
	pthread_mutex_lock(&L);
	live++;
	int i = 0;
	while (i < 63 && opened[i]) i++;
	opened[i] = c;
	pthread_mutex_unlock(&L);
	return c;
}

int ibv_close_device(struct context *c) {
	pthread_mutex_lock(&L);
	for (int i = 0; i < 64; i++)
		if (opened[i] == c) opened[i] = NULL;
	live--;
	pthread_mutex_unlock(&L);
	close(c->async_fd);
	close(c->async_write);
	free(c);
	return 0;
}

struct device_attr {
	char firmware[64]; uint64_t guid, system, max_mr, pages; uint32_t vendor, part, version; int max_qp, max_wr; uint32_t caps;
	int max_sge, max_sge_rd, max_cq, max_cqe, max_mrs, max_pd, reads[5], atomic, ee, rdd, max_mw, rest[11]; uint16_t pkeys; uint8_t delay, ports;
};

int ibv_query_device(struct context *c, struct device_attr *a) {
	(void)c;
	memset(a, 0, sizeof *a);
	a->max_qp = a->max_cq = a->max_mrs = a->max_pd = a->max_mw = 1 << 16;
	a->max_wr = 8192;
	a->max_cqe = 1 << 16;
	a->max_sge = 1;
	a->caps = 1 << 24; // memory windows of type 2B
	a->ports = 1;
	return 0;
}

struct port_attr { uint32_t state, max_mtu, mtu; int gids; uint32_t caps[4]; uint16_t pkeys, lid, sm; uint8_t rest[8], link, flags; };

int ibv_query_port(struct context *c, uint8_t n, struct port_attr *a) {
	(void)c;
	(void)n;
	a->state = 4;
	a->max_mtu = a->mtu = 5; // 4096 bytes
	a->gids = 1;
	a->link = 2; // Ethernet
	return 0;
}

struct gid { uint8_t raw[16]; uint32_t index, port, kind, interface; };

int _ibv_query_gid_ex(struct context *c, uint32_t port, uint32_t i, struct gid *g, uint32_t flags, size_t n) {
	(void)c;
	(void)flags;
	memset(g, 0, n);
	memcpy(g->raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x01", 16);
	g->index = i;
	g->port = port;
	g->kind = 2; // RoCE v2
	return 0;
}

// Objects.

struct pd *ibv_alloc_pd(struct context *c) {
	struct pd *p = calloc(1, sizeof *p);
	p->context = c;
	__sync_fetch_and_add(&live, 1);
	return p;
}
int ibv_dealloc_pd(struct pd *p) {
	__sync_fetch_and_sub(&live, 1);
	free(p);
	return 0;
}

struct mr *ibv_reg_mr(struct pd *pd, void *addr, size_t n, int access) {
	(void)access;
	struct mr *m = calloc(1, sizeof *m);
	pthread_mutex_lock(&L);
	if (mrs_n % 1024 == 0) mrs = realloc(mrs, (mrs_n + 1024) * sizeof *mrs);
	*m = (struct mr){.context = pd->context, .pd = pd, .addr = addr, .length = n, .lkey = (uint32_t)mrs_n << 8 | 0x5a};
	m->rkey = m->lkey;
	mrs[mrs_n++] = m;
	live++;
	pthread_mutex_unlock(&L);
	return m;
}

// ibv_dereg_mr refuses memory with a window, as devices do.
int ibv_dereg_mr(struct mr *m) {
	pthread_mutex_lock(&L);
	for (struct mw *w = mws; w; w = w->next)
		if (w->qp && w->handle == m->lkey) {
			pthread_mutex_unlock(&L);
			return EBUSY;
		}
	mrs[m->lkey >> 8] = NULL;
	live--;
	pthread_mutex_unlock(&L);
	free(m);
	return 0;
}

struct channel *ibv_create_comp_channel(struct context *c) {
	int fds[2];
	if (pipe2(fds, O_CLOEXEC)) return NULL;
	struct channel *h = calloc(1, sizeof *h);
	*h = (struct channel){c, fds[0], 0, fds[1]};
	__sync_fetch_and_add(&live, 1);
	return h;
}
int ibv_destroy_comp_channel(struct channel *h) {
	__sync_fetch_and_sub(&live, 1);
	close(h->fd);
	close(h->write);
	free(h);
	return 0;
}

struct cq *ibv_create_cq(struct context *c, int entries, void *user, struct channel *h, int vector) {
	(void)c;
	(void)user;
	(void)vector;
	struct cq *q = calloc(1, sizeof *q);
	*q = (struct cq){.channel = h, .list = calloc(entries, sizeof *q->list), .cap = entries};
	__sync_fetch_and_add(&live, 1);
	return q;
}
int ibv_destroy_cq(struct cq *q) {
	__sync_fetch_and_sub(&live, 1);
	free(q->list);
	free(q);
	return 0;
}
void ibv_ack_cq_events(struct cq *q, unsigned n) { (void)q; (void)n; }
void ibv_ack_async_event(void *e) { (void)e; }

struct qp *ibv_create_qp(struct pd *pd, struct init_attr *a) {
	struct qp *q = calloc(1, sizeof *q);
	pthread_mutex_lock(&L);
	*q = (struct qp){.context = pd->context, .pd = pd, .send_cq = a->send, .recv_cq = a->recv, .num = last_qp++, .cap = a->cap, .next = qps,
		.rq = calloc(a->cap.recv, sizeof *q->rq), .rq_sge = calloc(a->cap.recv, sizeof *q->rq_sge), .sq = calloc(a->cap.send, sizeof *q->sq)};
	qps = q;
	live++;
	pthread_mutex_unlock(&L);
	return q;
}

int ibv_modify_qp(struct qp *q, struct attr *a, int mask) {
	pthread_mutex_lock(&L);
	if (mask & MASK_DEST) q->dest = a->dest;
	if (mask & MASK_STATE) {
		if (a->state == ERR) broken(q, FLUSHED);
		else q->state = a->state;
		for (struct qp *p = qps; p; p = p->next) // The peer may have sent before this queue pair could receive.
			if (p->dest == q->num) advance(p);
	}
	pthread_mutex_unlock(&L);
	return 0;
}

int ibv_destroy_qp(struct qp *q) {
	pthread_mutex_lock(&L);
	for (struct mw *m = mws; m; m = m->next)
		if (m->qp == q) m->qp = NULL;
	struct qp **at = &qps;
	while (*at != q) at = &(*at)->next;
	*at = q->next;
	for (int i = 0; i < q->sq_n; i++) free(q->sq[i].inlined);
	live--;
	pthread_mutex_unlock(&L);
	free(q->rq);
	free(q->rq_sge);
	free(q->sq);
	free(q);
	return 0;
}

const char *ibv_wc_status_str(int status) {
	switch (status) {
	case SUCCESS: return "success";
	case FLUSHED: return "Work Request Flushed Error";
	case REMOTE_ACCESS: return "remote access error";
	case RETRIES: return "transport retry counter exceeded";
	case RNR_RETRIES: return "RNR retry counter exceeded";
	}
	return "error of the fake";
}
