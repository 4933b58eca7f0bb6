// Faults: a connection breaks at a request, all queue pairs fail, requests stall, or remote writes are held.
#include "fake.h"

// The break: see fakeverbs_break.
static struct { long at, count; int how, lag; bool undelivered, done; } hit;
static bool stalled, writes_held, removed;
static struct { char call[32]; int code; } failing;

bool delays_completion(void) { return stalled || removed || (hit.at && !hit.done && hit.count >= hit.at - hit.lag); }

bool delays_delivery(struct pending *p) {
	return stalled || removed || (delays_completion() && hit.undelivered) || (writes_held && p->w.opcode == OP_WRITE);
}

bool loses_completions(struct qp *q) { return hit.done && hit.how & 1 && !peer_of(q); }

void set_removed(bool on) { removed = on; }

// Events of a removed device, and its name in the list, are no failures.
bool call_fails(const char *call) {
	pthread_mutex_lock(&lock);
	int code = strcmp(call, failing.call) ? 0 : failing.code;
	if (removed && strncmp(call, "ibv_get_", 8)) code = EIO;
	pthread_mutex_unlock(&lock);
	if (code) errno = code;
	return code;
}

// fakeverbs_error lets calls of a function fail with an error number: one that makes an object, ibv_get_device_list, one that
// returns an event, or ibv_modify_qp for the connection to a peer. With 0 none fails.
EXPORT void fakeverbs_error(const char *call, int code) {
	pthread_mutex_lock(&lock);
	strncpy(failing.call, call, sizeof failing.call - 1);
	failing.code = code;
	pthread_mutex_unlock(&lock);
}

// break_now breaks the connection of a queue pair. The newest request of the queue pair is the one of the break.
static void break_now(struct qp *q) {
	hit.done = true;
	struct qp *peer = peer_of(q);
	for (int i = 0; hit.how & 1 && i < q->sq_n; i++) // The requests arrive first, and their acknowledgements do not.
		if (!q->sq[i].delivered && !(q->sq[i].delivered = execute(q, &q->sq[i]) == SUCCESS)) break;
	if (hit.how / 2 != 1) broken(q, RETRIES);
	if (hit.how / 2 != 0 && peer) broken(peer, FLUSHED);
	advance_all(); // The others go on.
}

bool request_posted(struct qp *q) {
	hit.count++;
	if (!hit.at || hit.done || hit.count != hit.at) return false;
	break_now(q);
	return true;
}

// fakeverbs_break breaks a queue pair at its n-th request from now on, of all queue pairs, or never if n is 0. how: 0 the sender's fails,
// 1 the same after the request has arrived, 2 and 3 the receiver's instead, 4 and 5 both. The requests before it, as many as lag, and all
// requests of the peers meanwhile, have not completed by then, and with undelivered not arrived.
EXPORT void fakeverbs_break(long n, int how, int lag, int undelivered) {
	pthread_mutex_lock(&lock);
	hit.at = n;
	hit.count = 0;
	hit.how = how;
	hit.lag = lag;
	hit.undelivered = undelivered;
	hit.done = false;
	pthread_mutex_unlock(&lock);
}

// fakeverbs_requests returns the number of requests since fakeverbs_break.
EXPORT long fakeverbs_requests(void) {
	pthread_mutex_lock(&lock);
	long n = hit.count;
	pthread_mutex_unlock(&lock);
	return n;
}

// fakeverbs_trigger breaks a queue pair with a request that is held back, if there is one. It reports whether the break has happened.
EXPORT int fakeverbs_trigger(void) {
	pthread_mutex_lock(&lock);
	for (struct qp *q = qps; q && !hit.done; q = q->next)
		if (hit.at && q->state == RTS && q->sq_n > 0) break_now(q);
	int done = hit.done;
	pthread_mutex_unlock(&lock);
	return done;
}

// fakeverbs_fail fails all connected queue pairs.
EXPORT void fakeverbs_fail(void) {
	pthread_mutex_lock(&lock);
	for (struct qp *q = qps; q; q = q->next)
		if (q->state == RTS) broken(q, FLUSHED);
	pthread_mutex_unlock(&lock);
}

// fakeverbs_stall lets requests neither arrive nor complete nor fail, as a defect of a device or driver does.
EXPORT void fakeverbs_stall(int on) {
	pthread_mutex_lock(&lock);
	stalled = on;
	advance_all();
	pthread_mutex_unlock(&lock);
}

// fakeverbs_hold lets remote writes, and later requests of their queue pairs, wait.
EXPORT void fakeverbs_hold(int on) {
	pthread_mutex_lock(&lock);
	writes_held = on;
	advance_all();
	pthread_mutex_unlock(&lock);
}

// fakeverbs_held returns the number of queue pairs with a remote write that waits.
EXPORT int fakeverbs_held(void) {
	pthread_mutex_lock(&lock);
	int n = 0;
	for (struct qp *q = qps; q; q = q->next) n += writes_held && q->sq_n > 0 && q->sq[0].w.opcode == OP_WRITE;
	pthread_mutex_unlock(&lock);
	return n;
}
