// Package otel reports a node to OpenTelemetry: spans of joining, of recoveries and reconfigurations, of remote calls with a context that goes
// to the called rank, and of some collectives; and the metrics of package [github.com/nexar-go/nexar/metrics] under the same names.
//
//	o := otel.New(otel.Config{})
//	node, err := o.Join(ctx, nexar.Config{})
//	defer o.Watch(node)()
//	for comm, err := range o.Epochs(ctx, node) {
//		...
//	}
//
// The spans have the names nexar.join, nexar.recovery, nexar.reconfiguration, nexar.call, nexar.serve, and nexar. with the name of a collective.
// Attributes are nexar.rank, nexar.size, nexar.epoch, and those that the functions name.
package otel

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/trace"
)

// scope is the name of the instrumentation.
const scope = "github.com/nexar-go/nexar"

// A Config has the settings of an [Observer]. Zero fields have defaults.
type Config struct {
	// TracerProvider and Propagator are those of the process by default ([otel.GetTracerProvider], [otel.GetTextMapPropagator]).
	TracerProvider oteltrace.TracerProvider
	Propagator     propagation.TextMapPropagator
	// Interval is the time between two samples of the collectives by [Observer.Watch], 1 s by default, and Collectives the largest number of
	// spans of one sample, 10 by default: those of the longest collectives. Negative values have no samples.
	Interval    time.Duration
	Collectives int
}

// An Observer makes spans. Its methods may be called concurrently.
type Observer struct {
	cfg    Config
	tracer oteltrace.Tracer
}

// New returns an Observer.
func New(cfg Config) *Observer {
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.Propagator == nil {
		cfg.Propagator = otel.GetTextMapPropagator()
	}
	cfg.Interval, cfg.Collectives = cmp.Or(cfg.Interval, time.Second), cmp.Or(cfg.Collectives, 10)
	return &Observer{cfg, cfg.TracerProvider.Tracer(scope)}
}

// end ends a span with an outcome.
func end(span oteltrace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// world returns the attributes of a communicator of the world.
func world(c *nexar.Comm) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.Int("nexar.rank", c.Rank()), attribute.Int("nexar.size", c.Size()), attribute.Int64("nexar.epoch", int64(c.Epoch()))}
}

// Join is [nexar.Join] in a span "nexar.join".
func (o *Observer) Join(ctx context.Context, cfg nexar.Config) (*nexar.Node, error) {
	ctx, span := o.tracer.Start(ctx, "nexar.join")
	node, err := nexar.Join(ctx, cfg)
	if err == nil {
		span.SetAttributes(world(node.World())...)
	}
	end(span, err)
	return node, err
}

// Epochs is [nexar.Node.Epochs]. Each change of the world is a span, "nexar.recovery" if operations have failed and "nexar.reconfiguration"
// otherwise. It begins when the communicator of the last world has ended, or when the body of the loop has, and ends with that of the next
// world. nexar.old_size is the size before, nexar.removed and nexar.joined are the numbers of ranks that have gone and come.
func (o *Observer) Epochs(ctx context.Context, node *nexar.Node) iter.Seq2[*nexar.Comm, error] {
	return func(yield func(*nexar.Comm, error) bool) {
		var span oteltrace.Span // of the change of the world; nil at first
		for c, err := range node.Epochs(ctx) {
			if span != nil {
				if err == nil {
					change := c.Change()
					span.SetAttributes(append(world(c), attribute.Int("nexar.old_size", change.OldSize),
						attribute.Int("nexar.removed", len(change.Removed)), attribute.Int("nexar.joined", len(change.Joined)))...)
				}
				end(span, err)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			ended := endOf(c)
			if !yield(c, nil) {
				return
			}
			span = o.change(ctx, c, ended)
		}
	}
}

// endOf returns a channel that gets the time when a communicator ends.
func endOf(c *nexar.Comm) <-chan time.Time {
	ended := make(chan time.Time, 1)
	go func() {
		<-c.Done()
		ended <- time.Now()
	}()
	return ended
}

// change begins the span of a change of the world, after the body of the loop for c.
func (o *Observer) change(ctx context.Context, c *nexar.Comm, ended <-chan time.Time) oteltrace.Span {
	name, at, cause := "nexar.reconfiguration", time.Now(), error(nil)
	select {
	case at = <-ended:
		name, cause = "nexar.recovery", c.Err()
	default:
	}
	_, span := o.tracer.Start(ctx, name, oteltrace.WithTimestamp(at))
	if cause != nil {
		span.RecordError(cause, oteltrace.WithTimestamp(at))
	}
	return span
}

// Watch reports the failures of other nodes and some collectives of a node as spans, until the returned function is called or
// the node is closed; stop waits for the last sample. A failure is a span "nexar.failure" without duration. Of the collectives that have ended in an Interval, the longest
// ones are spans, with their algorithm (nexar.algorithm), bytes, sequence number and outcome. Collectives that have taken less than 20 ms may be shown with
// an error of 20 ms.
func (o *Observer) Watch(node *nexar.Node) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		defer cancel() // also when the node is closed
		for failure, err := range node.Failures(ctx) {
			if err != nil {
				return
			}
			_, span := o.tracer.Start(ctx, "nexar.failure", oteltrace.WithAttributes(attribute.Int("nexar.peer", failure.Rank), attribute.String("nexar.node", failure.Node.String())))
			end(span, failure)
		}
	})
	if o.cfg.Interval > 0 && o.cfg.Collectives > 0 {
		watching.Go(func() { o.sample(ctx, node) })
	}
	return func() {
		cancel()
		watching.Wait()
	}
}

// sample makes spans of collectives until ctx ends, and then of those that have ended since the last interval.
func (o *Observer) sample(ctx context.Context, node *nexar.Node) {
	tick := time.NewTicker(o.cfg.Interval)
	defer tick.Stop()
	for since, stopped := time.Now(), false; !stopped; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			stopped = true
		}
		s := node.Trace()
		o.report(context.WithoutCancel(ctx), s, since)
		since = s.Time
	}
}

// report makes spans of the longest collectives of a snapshot that have ended since a time.
func (o *Observer) report(ctx context.Context, s trace.Snapshot, since time.Time) {
	list := slices.DeleteFunc(s.Operations, func(p trace.Operation) bool {
		return p.Seq == 0 || p.Running() || p.Purpose != "" || !p.Start.Add(p.Duration).After(since)
	})
	slices.SortStableFunc(list, func(a, b trace.Operation) int { return -cmp.Compare(a.Duration, b.Duration) })
	for _, p := range list[:min(len(list), o.cfg.Collectives)] {
		_, span := o.tracer.Start(ctx, "nexar."+p.Op, oteltrace.WithTimestamp(p.Start), oteltrace.WithAttributes(
			attribute.Int("nexar.rank", s.Rank), attribute.Int("nexar.size", s.Size), attribute.Int64("nexar.epoch", int64(p.Epoch)),
			attribute.String("nexar.comm", p.Comm), attribute.Int64("nexar.seq", int64(p.Seq)), attribute.Int64("nexar.bytes", p.Bytes),
			attribute.String("nexar.algorithm", p.Plan), attribute.Bool("nexar.approximate", p.Approximate),
		))
		if p.Outcome != trace.OK {
			span.SetStatus(codes.Error, p.Outcome)
		}
		span.End(oteltrace.WithTimestamp(p.Start.Add(p.Duration)))
	}
}

// Call is [nexar.Comm.Call] of a function that [Observer.Register] has registered, in a span "nexar.call". The function gets the
// context of the span, and the baggage of ctx if the Propagator carries it.
func (o *Observer) Call(ctx context.Context, c *nexar.Comm, to int, fn string, args []byte) ([]byte, error) {
	ctx, span := o.tracer.Start(ctx, "nexar.call", oteltrace.WithSpanKind(oteltrace.SpanKindClient), oteltrace.WithAttributes(
		attribute.Int("nexar.peer", to), attribute.String("nexar.function", fn), attribute.Int("nexar.rank", c.Rank())))
	carrier := propagation.MapCarrier{}
	o.cfg.Propagator.Inject(ctx, carrier)
	result, err := c.Call(ctx, to, fn, envelope(carrier, args))
	end(span, err)
	return result, err
}

// Register is [nexar.Comm.Register] of a function for [Observer.Call], which runs it in a span "nexar.serve". A [nexar.Comm.Call] without an
// Observer gets an error.
func (o *Observer) Register(c *nexar.Comm, fn string, h func(ctx context.Context, from int, args []byte) ([]byte, error)) {
	c.Register(fn, func(ctx context.Context, from int, message []byte) (result []byte, err error) {
		carrier, args, err := open(message)
		if err != nil {
			return nil, fmt.Errorf("arguments of function %q from rank %d: %w; call it by Observer.Call", fn, from, err)
		}
		ctx, span := o.tracer.Start(o.cfg.Propagator.Extract(ctx, carrier), "nexar.serve", oteltrace.WithSpanKind(oteltrace.SpanKindServer), oteltrace.WithAttributes(
			attribute.Int("nexar.peer", from), attribute.String("nexar.function", fn), attribute.Int("nexar.rank", c.Rank())))
		defer func() { end(span, err) }()
		return h(ctx, from, args)
	})
}

// The arguments of a call follow the fields of the context: their number, and each name and value with its length, all as uvarints.

// fieldsMax bounds the fields of a context.
const fieldsMax = 64

// envelope returns the arguments of a call with the fields of its context.
func envelope(fields propagation.MapCarrier, args []byte) []byte {
	b := binary.AppendUvarint(nil, uint64(len(fields)))
	for name, value := range fields {
		for _, text := range []string{name, value} {
			b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
		}
	}
	return append(b, args...)
}

var errEnvelope = errors.New("no context of a call")

// open is the opposite of envelope. It does not trust the message.
func open(message []byte) (fields propagation.MapCarrier, args []byte, err error) {
	next := func() (n uint64) {
		n, size := binary.Uvarint(message)
		if size <= 0 {
			err = errEnvelope
			return 0
		}
		message = message[size:]
		return n
	}
	text := func() string {
		n := next()
		if n > uint64(len(message)) {
			err = errEnvelope
			return ""
		}
		s := string(message[:n])
		message = message[n:]
		return s
	}
	count := next()
	if count > fieldsMax {
		return nil, nil, errEnvelope
	}
	fields = propagation.MapCarrier{}
	for range count {
		name := text()
		fields[name] = text()
	}
	if err != nil {
		return nil, nil, err
	}
	return fields, message, nil
}
