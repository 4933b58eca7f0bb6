// The objects of a libibverbs for tests. Their structures begin with those of <infiniband/verbs.h> on 64-bit Linux, as far as the
// binding uses them. The fields after that belong to the fake.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, LOCAL_PROTECTION = 4, FLUSHED = 5, BIND_ERROR = 6, REMOTE_ACCESS = 10, RETRIES = 12, RNR_RETRIES = 13 };
enum { OP_WRITE = 0, OP_SEND_IMM = 3, OP_INVALIDATE = 7, OP_BIND = 8 };
enum { DONE_SEND = 0, DONE_WRITE = 1, DONE_BIND = 5, DONE_INVALIDATE = 6, DONE_RECEIVE = 128 };
enum { RTR = 2, RTS = 3, ERR = 6 };
enum { ACCESS_BIND = 16, FLAG_INLINE = 8, WITH_IMM = 2, MASK_STATE = 1, MASK_PORT = 32, MASK_AV = 128, MASK_MTU = 256, MASK_DEST = 1 << 20 };
enum { EVENT_DEVICE_FATAL = 8, EVENT_PORT_ERR = 10 };

struct context {
	void *device, *compat0[7], *alloc_mw, *bind_mw, *dealloc_mw, *compat1, *poll_cq, *req_notify, *compat2[12], *post_send, *post_recv, *compat3[5];
	int cmd_fd, async_fd, vectors;
	pthread_mutex_t mutex;
	void *abi_compat;
	int async_write; struct context *next;
};
struct pd { struct context *context; uint32_t handle; };

// Memory of a host is accessed at its addresses, that of a GPU by a mapping of its dma-buf or, as PEER, by the addresses of the GPU.
enum kind { HOST, DMABUF, PEER };
struct mr {
	struct context *context; struct pd *pd; uint64_t addr, length; uint32_t handle, lkey, rkey;
	enum kind kind; int access; char *map; size_t mapped; char *first; // first is the byte of a dma-buf at addr
};
struct mw {
	struct context *context; struct pd *pd; uint32_t rkey, handle, type;
	struct qp *qp; uint32_t key; struct mr *mr; uint64_t addr, length; // the binding; qp is NULL without one
	struct mw *next;
};

struct channel { struct context *context; int fd, refs, write; };
struct wc {
	uint64_t id; uint32_t status, opcode, vendor, bytes, imm, qp, src; int flags; uint16_t pkey, slid; uint8_t sl, dlid;
};
// As with the provider of Mellanox cards, a request of an event has a number, and ibv_get_cq_event changes it for the next request. The
// device ignores a request with the number of the last event that it has delivered.
struct cq { struct channel *channel; bool armed; int arm_number, fired, unacknowledged; struct wc *list; int n, cap; };

struct sge { uint64_t addr; uint32_t length, lkey; };
struct recv { uint64_t id; struct recv *next; struct sge *list; int n; };
struct send {
	uint64_t id; struct send *next; struct sge *list; int n; uint32_t opcode, flags, imm;
	uint64_t remote_addr; uint32_t rkey; char atomic[28];
	struct mw *mw; uint32_t mw_key; struct mr *mr; uint64_t bind_addr, bind_length; uint32_t bind_access;
};
// A pending request has been posted and has not completed. It has been delivered if the peer has executed it.
struct pending { struct send w; struct sge sge; char *inlined; bool delivered; };
struct cap { uint32_t send, recv, send_sge, recv_sge, inlined; };
struct init_attr { void *context; struct cq *send, *recv; void *srq; struct cap cap; uint32_t kind; int all; };
struct ah { uint8_t gid[16]; uint32_t flow; uint8_t gid_index, hops, traffic_class, pad; uint16_t lid; uint8_t sl, bits, rate, global, port; };
struct attr {
	uint32_t state, cur, mtu, mig, qkey, rq_psn, sq_psn, dest, access; struct cap cap; struct ah ah, alt; uint16_t pkey, alt_pkey;
	uint8_t sqd[2], reads, dest_reads, rnr_timer, port, timeout, retries, rnr_retries, alt_port, alt_timeout; uint32_t rate;
};
struct qp {
	struct context *context; void *user; struct pd *pd; struct cq *send_cq, *recv_cq; void *srq;
	uint32_t handle, num, state, kind; char rest[96];
	uint32_t dest, mtu; struct cap cap; struct ah ah; uint8_t port;
	struct recv *rq; struct sge *rq_sge; int rq_first, rq_n;
	struct pending *sq; int sq_n;
	struct qp *next;
};

// lock guards all objects. Functions other than those of the library and of its control are called with it held.
extern pthread_mutex_t lock;
extern int live; // objects that have not been freed
extern struct mw *mws;
extern struct qp *qps;

// counted changes the number of live objects, without the lock.
void counted(int by);

// memory.c

struct mw *alloc_mw(struct pd *pd, int type);
int dealloc_mw(struct mw *w);

// inside reports whether n bytes at addr are among the length bytes at first.
static inline bool inside(uint64_t addr, size_t n, uint64_t first, uint64_t length) {
	return addr >= first && n <= length && addr - first <= length - n;
}
// local returns the registration with a local key, or NULL.
struct mr *local(uint32_t lkey);
// access_memory returns n bytes of a registration, or NULL if it does not have them.
char *access_memory(struct mr *m, uint64_t addr, size_t n);
// loaded notes a read of the network card, and stored performs a write.
void loaded(struct mr *m, size_t n);
void stored(struct mr *m, uint64_t addr, char *to, const char *from, size_t n);

// queue.c

int poll_cq(struct cq *cq, int n, struct wc *to);
int req_notify(struct cq *cq, int solicited);
int post_send(struct qp *q, struct send *w, struct send **bad);
int post_recv(struct qp *q, struct recv *w, struct recv **bad);

// execute carries a request out at the peer. It returns the status of the request, or NO_ANSWER.
enum { NO_ANSWER = -1 };
int execute(struct qp *q, struct pending *p);
// peer_of returns the peer of a queue pair, or NULL if it does not answer.
struct qp *peer_of(struct qp *q);
// broken puts a queue pair into the error state. The oldest request ends with a status, and the others are flushed.
void broken(struct qp *q, int status);
// advance executes the requests of a queue pair, and completes them, as far as no fault delays them.
void advance(struct qp *q);
void advance_all(void);

// fault.c

// request_posted counts a request, the newest of a queue pair, and carries a fault out that is due. It reports whether it has.
bool request_posted(struct qp *q);
// set_removed lets requests neither arrive nor complete, and calls fail, while on.
void set_removed(bool on);
// call_fails sets errno and reports true if a call of the library is to fail. It takes the lock.
bool call_fails(const char *call);
// delays_delivery reports whether a request must not be executed yet, delays_completion whether requests must not complete, and
// loses_completions whether the completions of delivered requests of a queue pair are lost.
bool delays_delivery(struct pending *p);
bool delays_completion(void);
bool loses_completions(struct qp *q);
