// One rank of the comparison on Gloo. ../../README.md, "The protocol of the
// programs", describes the flags, the output and the measurement.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

namespace {

constexpr int runsMax = 1 << 20;

// value returns element i of the input of a rank. Sums over ranks are exact.
float value(int rank, size_t i) { return 1 + float((i + 17 * size_t(rank)) % 251); }

float sum(int ranks, size_t i) {
  float s = 0;
  for (int r = 0; r < ranks; r++) s += value(r, i);
  return s;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A Rank is one process. Options and buffers of an operation are made once for
// each size and reused, which the library allows.
struct Rank {
  std::shared_ptr<gloo::rendezvous::Context> context;
  int rank, ranks;
  double budget, warm;
  bool untouched;
  std::vector<float> src, dst;
  std::vector<double> times;

  size_t block(size_t bytes) const { return std::max<size_t>(bytes / 4 / size_t(ranks), 1); }
  bool talks() const { return rank == 0 || rank == ranks - 1; }
  void barrier() {
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
  }
};

using Run = std::function<void()>;

Run allReduce(Rank& me, size_t bytes) {
  auto options = std::make_shared<gloo::AllreduceOptions>(me.context);
  options->setOutput(me.dst.data(), bytes / 4);
  options->setReduceFunction(
      [](void* d, const void* a, const void* b, size_t n) { gloo::sum<float>(d, a, b, n); });
  return [=] { gloo::allreduce(*options); };
}

Run allGather(Rank& me, size_t bytes) {
  auto options = std::make_shared<gloo::AllgatherOptions>(me.context);
  options->setInput(me.src.data(), me.block(bytes));
  options->setOutput(me.dst.data(), me.block(bytes) * size_t(me.ranks));
  return [=] { gloo::allgather(*options); };
}

// reduceScatter stores this rank's block at the beginning of the input vector.
Run reduceScatter(Rank& me, size_t bytes) {
  size_t each = me.block(bytes);
  auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
      me.context, std::vector<float*>{me.dst.data()}, int(each * size_t(me.ranks)),
      std::vector<int>(size_t(me.ranks), int(each)));
  return [=] { algorithm->run(); };
}

Run broadcast(Rank& me, size_t bytes) {
  auto options = std::make_shared<gloo::BroadcastOptions>(me.context);
  options->setOutput(me.dst.data(), bytes / 4);
  options->setRoot(0);
  return [=] { gloo::broadcast(*options); };
}

Run allToAll(Rank& me, size_t bytes) {
  auto options = std::make_shared<gloo::AlltoallOptions>(me.context);
  options->setInput(me.src.data(), me.block(bytes) * size_t(me.ranks));
  options->setOutput(me.dst.data(), me.block(bytes) * size_t(me.ranks));
  return [=] { gloo::alltoall(*options); };
}

Run barrier(Rank& me, size_t) {
  return [&me] { me.barrier(); };
}

Run sendRecv(Rank& me, size_t bytes) {
  if (!me.talks()) return [] {};
  int other = me.ranks - 1 - me.rank;
  bool first = me.rank == 0;
  const uint64_t slot = 1 << 20;  // Collectives use smaller numbers.
  std::shared_ptr<gloo::transport::UnboundBuffer> out =
      me.context->createUnboundBuffer(me.src.data(), bytes / 4 * 4);
  std::shared_ptr<gloo::transport::UnboundBuffer> in =
      me.context->createUnboundBuffer(me.dst.data(), bytes / 4 * 4);
  return [=] {
    if (first) {
      out->send(other, slot);
      out->waitSend();
    }
    in->recv(other, slot);
    in->waitRecv();
    if (!first) {
      out->send(other, slot);
      out->waitSend();
    }
  };
}

const std::map<std::string, Run (*)(Rank&, size_t)> operations = {
    {"all_reduce", allReduce}, {"all_gather", allGather}, {"reduce_scatter", reduceScatter},
    {"broadcast", broadcast},  {"all_to_all", allToAll},  {"barrier", barrier},
    {"send_recv", sendRecv},
};

bool reducesInPlace(const std::string& op) { return op == "all_reduce" || op == "reduce_scatter"; }

// wanted returns the expected value of element i of the result.
float wanted(const Rank& me, const std::string& op, size_t each, size_t i) {
  if (op == "all_reduce") return sum(me.ranks, i);
  if (op == "reduce_scatter") return sum(me.ranks, size_t(me.rank) * each + i);
  if (op == "all_gather") return value(int(i / each), i % each);
  if (op == "all_to_all") return value(int(i / each), size_t(me.rank) * each + i % each);
  if (op == "broadcast") return value(0, i);
  return value(me.ranks - 1 - me.rank, i);
}

size_t results(const Rank& me, const std::string& op, size_t bytes) {
  if (op == "barrier" || (op == "send_recv" && !me.talks())) return 0;
  if (op == "reduce_scatter") return me.block(bytes);
  if (op == "all_gather" || op == "all_to_all") return me.block(bytes) * size_t(me.ranks);
  return bytes / 4;
}

// clear sets the vectors to zero, so that repeated sums do not grow.
void clear(Rank& me) {
  std::fill(me.src.begin(), me.src.end(), 0.f);
  std::fill(me.dst.begin(), me.dst.end(), 0.f);
}

// wrong runs an operation once and returns the number of wrong elements.
size_t wrong(Rank& me, const std::string& op, size_t bytes, const Run& run) {
  size_t all = std::max(bytes / 4, me.block(bytes) * size_t(me.ranks)), bad = 0;
  for (size_t i = 0; i < all; i++) {
    me.src[i] = value(me.rank, i);
    me.dst[i] = reducesInPlace(op) || (op == "broadcast" && me.rank == 0) ? me.src[i] : 0;
  }
  me.barrier();
  run();
  for (size_t i = 0; i < results(me, op, bytes); i++)
    bad += me.dst[i] != wanted(me, op, me.block(bytes), i);
  clear(me);
  return bad;
}

// rewrite writes the input of an operation anew, so that no rank finds it in its own cache.
void rewrite(Rank& me, const std::string& op, size_t bytes) {
  if (op == "barrier" || (op == "broadcast" && me.rank != 0)) return;
  bool inPlace = reducesInPlace(op) || op == "broadcast";
  size_t n = bytes / 4, each = me.block(bytes);
  if (op == "all_gather") n = each;
  if (op == "all_to_all" || op == "reduce_scatter") n = each * size_t(me.ranks);
  std::fill_n(inPlace ? me.dst.begin() : me.src.begin(), n, 1.f);
}

double once(Rank& me, const std::string& op, size_t bytes, const Run& run, bool untouched) {
  if (!untouched) rewrite(me, op, bytes);
  me.barrier();
  double began = now();
  run();
  double took = now() - began;
  return op == "send_recv" ? took / 2 : took;
}

// agreed returns rank 0's number on all ranks.
int agreed(Rank& me, int n) {
  gloo::BroadcastOptions options(me.context);
  options.setOutput(&n, 1);
  options.setRoot(0);
  gloo::broadcast(options);
  return n;
}

// repeat fills me.times with runs until the budget is spent.
void repeat(Rank& me, const std::string& op, size_t bytes, const Run& run, bool untouched, double budget) {
  me.times.clear();
  double began = now();
  for (int next = 3; next > 0;) {
    double start = now();
    for (int i = 0; i < next; i++) me.times.push_back(once(me, op, bytes, run, untouched));
    double fit = (budget - (now() - began)) / ((now() - start) / next);
    int done = int(me.times.size());
    next = agreed(me, int(std::max(0., std::min({fit, 2. * done, double(runsMax - done)}))));  // Rank 0 decides.
  }
}

// measure measures one operation at one size and prints its lines.
void measure(Rank& me, const std::string& op, size_t bytes) {
  Run run = operations.at(op)(me, bytes);
  size_t bad = wrong(me, op, bytes, run);
  for (bool untouched : {false, true}) {
    if (untouched && (!me.untouched || bytes == 0)) continue;
    if (untouched) clear(me);
    if (me.warm > 0) repeat(me, op, bytes, run, untouched, me.warm);
    repeat(me, op, bytes, run, untouched, me.budget);
    std::sort(me.times.begin(), me.times.end());
    size_t n = me.times.size();
    double median = (me.times[(n - 1) / 2] + me.times[n / 2]) / 2;
    printf("{\"op\":\"%s\",\"bytes\":%zu,\"untouched\":%s,\"ranks\":%d,\"rank\":%d,\"iters\":%zu,\"median_us\":%.3f,\"wrong\":%zu}\n",
           op.c_str(), bytes, untouched ? "true" : "false", me.ranks, me.rank, n, median * 1e6, bad);
    fflush(stdout);
  }
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

int run(std::map<std::string, std::string> flags) {
  std::vector<size_t> sizes;
  for (const auto& part : split(flags["-sizes"])) sizes.push_back(std::stoul(part));
  if (sizes.empty()) throw std::runtime_error("-sizes is missing: BYTES,...");
  gloo::transport::tcp::attr attr;
  attr.iface = flags["-iface"];
  Rank me;
  me.rank = std::stoi(flags["-rank"]);
  me.ranks = std::stoi(flags["-ranks"]);
  me.context = std::make_shared<gloo::rendezvous::Context>(me.rank, me.ranks);
  gloo::rendezvous::FileStore store(flags["-store"]);
  auto device = gloo::transport::tcp::CreateDevice(attr);
  me.context->connectFullMesh(store, device);

  size_t floats = *std::max_element(sizes.begin(), sizes.end()) / 4;
  floats += size_t(me.ranks);  // A block has at least one element for each rank.
  me.src.assign(floats, 0);
  me.dst.assign(floats, 0);
  me.budget = std::stod(flags["-budget"]);
  me.warm = std::stod(flags["-warm"]);
  me.untouched = flags["-untouched"] == "1";
  if (me.rank == 0) printf("{\"about\":\"Gloo, TCP\"}\n");
  for (const auto& op : split(flags["-ops"])) {
    if (!operations.count(op)) throw std::runtime_error("-ops: unknown operation " + op);
    if (op == "barrier")
      measure(me, op, 0);
    else
      for (auto bytes : sizes) measure(me, op, bytes);
  }
  me.barrier();  // A rank must not close its sockets while others still use them.
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags = {{"-budget", "1"}, {"-warm", "0"}, {"-iface", "lo"}};
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  try {
    return run(flags);
  } catch (const std::exception& e) {
    fprintf(stderr, "rank: %s\n", e.what());
    return 1;
  }
}
