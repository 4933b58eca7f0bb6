// Completion queues and queue pairs. A request is executed when it is posted, or when its peer can receive it, except while a fault
// holds it back.
#include "fake.h"

struct qp *qps;
static uint32_t last_qp = 17;

static void complete(struct cq *cq, struct wc w) {
	if (cq->n == cq->cap) abort(); // an overrun of the queue
	cq->list[cq->n++] = w;
	if (!cq->armed) return;
	cq->armed = false;
	cq->fired = cq->arm_number;
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

// pop completes the oldest request of a send queue.
static void pop(struct qp *q, int status) {
	struct pending *p = &q->sq[0];
	complete(q->send_cq, (struct wc){.id = p->w.id, .status = status, .opcode = done_opcode(p->w.opcode), .qp = q->num});
	free(p->inlined);
	memmove(q->sq, q->sq + 1, --q->sq_n * sizeof *q->sq);
}

void broken(struct qp *q, int status) {
	if (q->state == ERR) return;
	q->state = ERR;
	while (q->sq_n > 0) {
		pop(q, status);
		status = FLUSHED;
	}
	for (; q->rq_n > 0; q->rq_n--, q->rq_first = (q->rq_first + 1) % q->cap.recv)
		complete(q->recv_cq, (struct wc){.id = q->rq[q->rq_first].id, .status = FLUSHED, .opcode = DONE_RECEIVE, .qp = q->num});
}

struct qp *peer_of(struct qp *q) {
	struct qp *peer = qps;
	while (peer && peer->num != q->dest) peer = peer->next;
	return peer && peer->dest == q->num && (peer->state == RTR || peer->state == RTS) ? peer : NULL;
}

static int bind_window(struct qp *q, struct send *w) {
	if (w->mw->qp || !(w->mr->access & ACCESS_BIND)) return BIND_ERROR;
	w->mw->qp = q;
	w->mw->key = w->mw_key;
	w->mw->mr = w->mr;
	w->mw->addr = w->bind_addr;
	w->mw->length = w->bind_length;
	return SUCCESS;
}

static int invalidate(struct qp *q, uint32_t key) {
	for (struct mw *w = mws; w; w = w->next)
		if (w->qp == q && w->key == key) {
			w->qp = NULL;
			return SUCCESS;
		}
	return BIND_ERROR;
}

// remote returns n bytes that a peer may write with a key, and their registration, or NULL.
static char *remote(struct qp *peer, uint32_t key, uint64_t addr, size_t n, struct mr **m) {
	for (struct mw *w = mws; w; w = w->next)
		if (w->qp == peer && w->key == key && inside(addr, n, w->addr, w->length)) {
			*m = w->mr;
			return access_memory(w->mr, addr, n);
		}
	return NULL;
}

static int deliver_write(struct qp *peer, struct send *w, const char *from, size_t n) {
	struct mr *m;
	char *to = remote(peer, w->rkey, w->remote_addr, n, &m);
	if (!to) {
		broken(peer, FLUSHED);
		return REMOTE_ACCESS;
	}
	stored(m, w->remote_addr, to, from, n);
	return SUCCESS;
}

static int deliver_message(struct qp *peer, struct send *w, const char *from, size_t n) {
	if (peer->rq_n == 0) return RNR_RETRIES;
	struct sge *s = &peer->rq_sge[peer->rq_first];
	struct mr *m = local(s->lkey);
	char *to = access_memory(m, s->addr, s->length);
	if (!to || n > s->length) {
		broken(peer, FLUSHED);
		return REMOTE_ACCESS;
	}
	stored(m, s->addr, to, from, n);
	complete(peer->recv_cq, (struct wc){.id = peer->rq[peer->rq_first].id, .opcode = DONE_RECEIVE, .bytes = n, .imm = w->imm, .qp = peer->num, .flags = WITH_IMM});
	peer->rq_first = (peer->rq_first + 1) % peer->cap.recv;
	peer->rq_n--;
	return SUCCESS;
}

int execute(struct qp *q, struct pending *p) {
	struct send *w = &p->w;
	switch (w->opcode) {
	case OP_BIND: return bind_window(q, w);
	case OP_INVALIDATE: return invalidate(q, w->imm);
	}
	size_t n = w->n ? p->sge.length : 0;
	struct mr *m = p->inlined || n == 0 ? NULL : local(p->sge.lkey);
	const char *from = p->inlined ? p->inlined : n == 0 ? "" : access_memory(m, p->sge.addr, n);
	if (!from) return LOCAL_PROTECTION;
	struct qp *peer = peer_of(q);
	if (!peer) return NO_ANSWER;
	if (m) loaded(m, n);
	return w->opcode == OP_WRITE ? deliver_write(peer, w, from, n) : deliver_message(peer, w, from, n);
}

void advance(struct qp *q) {
	for (int i = 0; i < q->sq_n && q->state == RTS;) {
		struct pending *p = &q->sq[i];
		if (p->delivered && loses_completions(q)) return;
		if (!p->delivered) {
			if (delays_delivery(p)) return;
			int status = execute(q, p);
			if (status == NO_ANSWER) return; // It is sent again until the queue pair fails.
			if (status != SUCCESS) {
				while (i-- > 0) pop(q, SUCCESS);
				broken(q, status);
				return;
			}
			p->delivered = true;
		}
		if (delays_completion()) i++;
		else pop(q, SUCCESS);
	}
}

void advance_all(void) {
	for (struct qp *q = qps; q; q = q->next) advance(q);
}

int poll_cq(struct cq *cq, int n, struct wc *to) {
	pthread_mutex_lock(&lock);
	if (n > cq->n) n = cq->n;
	memcpy(to, cq->list, n * sizeof *to);
	memmove(cq->list, cq->list + n, (cq->n -= n) * sizeof *cq->list);
	pthread_mutex_unlock(&lock);
	return n;
}

int req_notify(struct cq *cq, int solicited) {
	(void)solicited;
	pthread_mutex_lock(&lock);
	if (cq->arm_number != cq->fired) cq->armed = true;
	pthread_mutex_unlock(&lock);
	return 0;
}

EXPORT int ibv_get_cq_event(struct channel *h, struct cq **cq, void **user) {
	uint64_t event;
	if (call_fails("ibv_get_cq_event")) return -1;
	ssize_t n = read(h->fd, &event, sizeof event);
	if (n != sizeof event) return -1;
	*cq = (struct cq *)(uintptr_t)event;
	*user = NULL;
	pthread_mutex_lock(&lock);
	(*cq)->arm_number = ((*cq)->arm_number + 1) % 4;
	(*cq)->unacknowledged++;
	pthread_mutex_unlock(&lock);
	return 0;
}

int post_send(struct qp *q, struct send *w, struct send **bad) {
	pthread_mutex_lock(&lock);
	int code = 0;
	if (q->state != RTS && q->state != ERR) code = EINVAL;
	if (q->sq_n == (int)q->cap.send) code = ENOMEM;
	if (code) {
		*bad = w;
		pthread_mutex_unlock(&lock);
		return code;
	}
	struct pending *p = &q->sq[q->sq_n++];
	*p = (struct pending){.w = *w};
	if (w->n) p->sge = w->list[0];
	if (w->n && w->flags & FLAG_INLINE) p->inlined = memcpy(malloc(p->sge.length + 1), (void *)(uintptr_t)p->sge.addr, p->sge.length);
	if (q->state == ERR) pop(q, FLUSHED);
	else if (!request_posted(q)) advance(q);
	pthread_mutex_unlock(&lock);
	return 0;
}

int post_recv(struct qp *q, struct recv *w, struct recv **bad) {
	pthread_mutex_lock(&lock);
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
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT struct channel *ibv_create_comp_channel(struct context *c) {
	int fds[2];
	if (call_fails("ibv_create_comp_channel") || pipe2(fds, O_CLOEXEC)) return NULL;
	struct channel *h = calloc(1, sizeof *h);
	*h = (struct channel){c, fds[0], 0, fds[1]};
	counted(1);
	return h;
}

EXPORT int ibv_destroy_comp_channel(struct channel *h) {
	counted(-1);
	close(h->fd);
	close(h->write);
	free(h);
	return 0;
}

EXPORT struct cq *ibv_create_cq(struct context *c, int entries, void *user, struct channel *h, int vector) {
	(void)c;
	(void)user;
	(void)vector;
	if (call_fails("ibv_create_cq")) return NULL;
	struct cq *q = calloc(1, sizeof *q);
	*q = (struct cq){.channel = h, .list = calloc(entries, sizeof *q->list), .cap = entries, .fired = -1};
	counted(1);
	return q;
}

EXPORT int ibv_destroy_cq(struct cq *q) {
	if (q->unacknowledged) abort(); // The library would wait for ever.
	counted(-1);
	free(q->list);
	free(q);
	return 0;
}

EXPORT void ibv_ack_cq_events(struct cq *q, unsigned n) {
	pthread_mutex_lock(&lock);
	q->unacknowledged -= n;
	pthread_mutex_unlock(&lock);
}

EXPORT struct qp *ibv_create_qp(struct pd *pd, struct init_attr *a) {
	if (call_fails("ibv_create_qp")) return NULL;
	struct qp *q = calloc(1, sizeof *q);
	pthread_mutex_lock(&lock);
	*q = (struct qp){.context = pd->context, .pd = pd, .send_cq = a->send, .recv_cq = a->recv, .num = last_qp++, .cap = a->cap, .next = qps,
		.rq = calloc(a->cap.recv, sizeof *q->rq), .rq_sge = calloc(a->cap.recv, sizeof *q->rq_sge), .sq = calloc(a->cap.send, sizeof *q->sq)};
	qps = q;
	live++;
	pthread_mutex_unlock(&lock);
	return q;
}

// ibv_modify_qp refuses a queue pair that has failed, unless it is to fail.
EXPORT int ibv_modify_qp(struct qp *q, struct attr *a, int mask) {
	if (call_fails(a->state == RTR ? "ibv_modify_qp" : "ibv_modify_qp to another state")) return errno;
	pthread_mutex_lock(&lock);
	int code = mask & MASK_STATE && q->state == ERR && a->state != ERR ? EINVAL : 0;
	if (!code && mask & MASK_DEST) q->dest = a->dest;
	if (!code && mask & MASK_MTU) q->mtu = a->mtu;
	if (!code && mask & MASK_PORT) q->port = a->port;
	if (!code && mask & MASK_AV) q->ah = a->ah;
	if (!code && mask & MASK_STATE) {
		if (a->state == ERR) broken(q, FLUSHED);
		else q->state = a->state;
		for (struct qp *p = qps; p; p = p->next) // The peer may have sent before this queue pair could receive.
			if (p->dest == q->num) advance(p);
	}
	pthread_mutex_unlock(&lock);
	return code;
}

// A route is how a queue pair reaches its peer.
struct route { uint32_t port, path_port, mtu, global, traffic_class, lid, sl; uint8_t gid[16]; };

// fakeverbs_route sets the route of a queue pair. It returns 0 if there is none with the number.
EXPORT int fakeverbs_route(uint32_t num, struct route *to) {
	pthread_mutex_lock(&lock);
	struct qp *q = qps;
	while (q && q->num != num) q = q->next;
	if (q) {
		*to = (struct route){q->port, q->ah.port, q->mtu, q->ah.global, q->ah.traffic_class, q->ah.lid, q->ah.sl, {0}};
		memcpy(to->gid, q->ah.gid, 16);
	}
	pthread_mutex_unlock(&lock);
	return q != NULL;
}

EXPORT int ibv_destroy_qp(struct qp *q) {
	pthread_mutex_lock(&lock);
	for (struct mw *w = mws; w; w = w->next)
		if (w->qp == q) w->qp = NULL;
	struct qp **at = &qps;
	while (*at != q) at = &(*at)->next;
	*at = q->next;
	for (int i = 0; i < q->sq_n; i++) free(q->sq[i].inlined);
	live--;
	pthread_mutex_unlock(&lock);
	free(q->rq);
	free(q->rq_sge);
	free(q->sq);
	free(q);
	return 0;
}

EXPORT const char *ibv_wc_status_str(int status) {
	switch (status) {
	case SUCCESS: return "success";
	case LOCAL_PROTECTION: return "local protection error";
	case FLUSHED: return "Work Request Flushed Error";
	case BIND_ERROR: return "memory management operation error";
	case REMOTE_ACCESS: return "remote access error";
	case RETRIES: return "transport retry counter exceeded";
	case RNR_RETRIES: return "RNR retry counter exceeded";
	}
	return "error of the fake";
}
