package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nexar-go/nexar/launch/internal/text"
)

const (
	openPMILimit  = 30 * time.Second // of OpenPMI
	closePMILimit = 10 * time.Second // of PMI.Close

	// PMI-2 has no request for these limits. All process managers have at least these.
	pmi2Key   = 64
	pmi2Value = 1024
)

// ErrNoValue is the error of [PMIClient.Get] for a key without a value.
var ErrNoValue = errors.New("no rank has put a value before the fence")

// A PMIClient is a connection to the process manager that has started this process, over the descriptor in PMI_FD. By it, the ranks of a job
// exchange values: each rank puts its own, all ranks call Fence, then each rank can get those of all. One goroutine can use it at a time.
//
// A process manager takes a process that ends before [PMIClient.Close] for a failed one, and most of them then end the job.
//
// After an error other than [ErrNoValue], or one of an argument, the connection cannot be used anymore.
type PMIClient struct {
	conn     *os.File
	answers  *bufio.Reader
	version  int
	kvs      string // PMI-1: name of the key-value space
	maxKey   int    // bytes of a key
	maxValue int    // bytes of a value
	failed   error  // of the first failed exchange
}

// OpenPMI connects this process to its process manager. It asks for PMI-1, which all process managers speak, and uses PMI-2 if
// the process manager offers only that. It fails if the process manager contradicts PMI_RANK, PMI_SIZE, PMI_SPAWNED or MPI_APPNUM.
//
// Programs that this process starts do not inherit the descriptor. OpenPMI does not use a descriptor that this process has opened itself, to
// which a variable of another job could point.
//
// OpenPMI waits for the process manager until ctx ends, but at most 30 seconds.
func OpenPMI(ctx context.Context, env Environment) (*PMIClient, error) {
	ctx, cancel := limited(ctx, openPMILimit)
	defer cancel()
	conn, err := inheritedPMI(env)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLaunch, err)
	}
	p := &PMIClient{conn: conn, answers: bufio.NewReaderSize(conn, maxPMIMessage)}
	if err := p.init(ctx, env); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return p, nil
}

// limited returns a context for calls that the process manager answers at once.
func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("the process manager has not answered within %v", limit))
}

// inheritedPMI returns the descriptor in PMI_FD as a file.
func inheritedPMI(env Environment) (*os.File, error) {
	value, port := env.Vars["PMI_FD"], env.Vars["PMI_PORT"]
	if value == "" && port != "" {
		return nil, fmt.Errorf("PMI_FD is not set, but PMI_PORT is %s: start mpiexec without -pmi-port", text.Quote(port))
	}
	if value == "" {
		return nil, errors.New("PMI_FD is not set: start the program by mpiexec, or by srun --mpi=pmi2")
	}
	fd, ok := parseNumber(value)
	if !ok || fd <= 2 {
		return nil, fmt.Errorf("PMI_FD is %s: expected the number of a descriptor, 3 or more: start the program by mpiexec, or unset it", text.Quote(value))
	}
	conn, err := inherited(fd)
	if err != nil {
		return nil, fmt.Errorf("PMI_FD is %d: %w: expected the connection to the process manager, which only the process that it has started inherits: "+
			"start the program directly by mpiexec or srun, or unset PMI_FD if it is left over", fd, err)
	}
	return conn, nil
}

func (p *PMIClient) init(ctx context.Context, env Environment) error {
	if err := p.negotiate(ctx); err != nil {
		return err
	}
	if p.version == 1 {
		return p.init1(ctx, env)
	}
	return p.init2(ctx, env)
}

// negotiate sets the version. The messages are lines of PMI-1 in both versions. Intel MPI's process manager ends the job if
// it is asked for PMI-2, therefore PMI-1 is the first request.
func (p *PMIClient) negotiate(ctx context.Context) error {
	p.version = 1
	answer, err := p.call(ctx, "", request{"init", []field{{"pmi_version", "1"}, {"pmi_subversion", "1"}}}, "response_to_init")
	var refused *refusal
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	if offer := answer.get("pmi_version"); offer == "1" && err == nil {
		return nil
	} else if offer != "2" {
		if err != nil {
			return err
		}
		return p.unexpected("init", answer, "pmi_version=1 or pmi_version=2")
	}
	p.version = 2
	answer, err = p.call(ctx, "", request{"init", []field{{"pmi_version", "2"}, {"pmi_subversion", "0"}}}, "response_to_init")
	if err == nil && answer.get("pmi_version") != "2" {
		err = p.unexpected("init", answer, "pmi_version=2, as in the answer before")
	}
	return err
}

// init1 gets the limits and the name of the key-value space. In PMI-1 only the environment contains rank and size.
func (p *PMIClient) init1(ctx context.Context, env Environment) error {
	limits, err := p.call(ctx, "", request{"get_maxes", nil}, "maxes")
	if err != nil {
		return err
	}
	key, okKey := parseNumber(limits.get("keylen_max"))
	value, okValue := parseNumber(limits.get("vallen_max"))
	if !okKey || !okValue || key < 2 || value < 2 {
		return p.unexpected("get_maxes", limits, "keylen_max and vallen_max of 2 or more")
	}
	p.maxKey, p.maxValue = key-1, value-1 // The limits include the zero byte at the end of a C string.
	answer, err := p.call(ctx, "", request{"get_my_kvsname", nil}, "my_kvsname")
	if err != nil {
		return err
	}
	if p.kvs = answer.get("kvsname"); p.kvs == "" {
		return p.unexpected("get_my_kvsname", answer, "kvsname")
	}
	answer, err = p.call(ctx, "", request{"get_appnum", nil}, "appnum")
	if err != nil {
		return err
	}
	return p.compare("get_appnum", answer, env, "appnum", "MPI_APPNUM")
}

func (p *PMIClient) init2(ctx context.Context, env Environment) error {
	p.maxKey, p.maxValue = pmi2Key-1, pmi2Value-1
	rank, job := env.Vars["PMI_RANK"], env.Vars["PMI_JOBID"]
	if _, ok := parseNumber(rank); !ok {
		return fmt.Errorf("%w: PMI_RANK is %s: expected the rank of this process, for PMI-2: start the program by mpiexec or srun", ErrLaunch, text.Quote(rank))
	}
	if checkPMI(job) != nil {
		job = "0" // Slurm insists on a value.
	}
	answer, err := p.call(ctx, "", request{"fullinit", []field{{"pmijobid", job}, {"pmirank", rank}, {"threaded", "FALSE"}}}, "fullinit-response")
	if err != nil {
		return err
	}
	for _, same := range [][2]string{{"rank", "PMI_RANK"}, {"size", "PMI_SIZE"}, {"appnum", "MPI_APPNUM"}} {
		if err := p.compare("fullinit", answer, env, same[0], same[1]); err != nil {
			return err
		}
	}
	spawned, says := env.Vars["PMI_SPAWNED"], answer.get("spawner-jobid")
	if (spawned == "" || spawned == "0") != (says == "") {
		return p.errorf("fullinit", "", "%w: the process manager says spawner-jobid=%s, but PMI_SPAWNED is %s: %s", ErrLaunch, excerpt(says), text.Quote(spawned), otherJob)
	}
	return nil
}

const otherJob = "unset variables of other jobs, and start the program directly by mpiexec or srun"

// compare returns an error if the field of an answer and the variable are numbers that differ. A process manager that does not
// know a number leaves it out or says -1.
func (p *PMIClient) compare(call string, answer message, env Environment, name, variable string) error {
	says, have := answer.get(name), env.Vars[variable]
	if have == "" || says == "" || says == "-1" || says == have {
		return nil
	}
	return p.errorf(call, "", "%w: the process manager says %s=%s, but %s is %s: %s", ErrLaunch, name, excerpt(says), variable, text.Quote(have), otherJob)
}

// Put stores a value, which all ranks can get after the next [PMIClient.Fence]. The key is unique in the job. Both have at least one byte and consist
// of printable ASCII without space, ";" and "\", and keys have no "=". Keys of up to 63 bytes and values of up to 800
// can be stored in all known process managers.
//
// Errors contain no values, as these can be secrets.
func (p *PMIClient) Put(ctx context.Context, key, value string) error {
	if err := p.checkKey(key); err != nil {
		return p.errorf("put", key, "%w", err)
	}
	if err := checkPMI(value); err != nil {
		return p.errorf("put", key, "value of %d bytes: %w", len(value), err)
	}
	if len(value) > p.maxValue {
		return p.errorf("put", key, "the value has %d bytes: expected at most %d, the limit of the process manager", len(value), p.maxValue)
	}
	if p.version == 2 {
		_, err := p.call(ctx, key, request{"kvs-put", []field{{"key", key}, {"value", value}}}, "kvs-put-response")
		return err
	}
	r := request{"put", []field{{"kvsname", p.kvs}, {"key", key}, {"value", value}}}
	// The answer to a get is a line, too, and can have more fields than the request.
	line := max(len(r.encode(1)), len("cmd=get_result rc=0 msg=success value=\n")+len(value))
	if line >= maxPMILine {
		return p.errorf("put", key, "the value has %d bytes: expected at most %d, as lines of PMI-1 have less than %d bytes", len(value), len(value)+maxPMILine-1-line, maxPMILine)
	}
	_, err := p.call(ctx, key, r, "put_result")
	return err
}

// Fence waits until all ranks of the job have called it.
func (p *PMIClient) Fence(ctx context.Context) error {
	var err error
	if p.version == 2 {
		_, err = p.call(ctx, "", request{"kvs-fence", nil}, "kvs-fence-response")
	} else {
		_, err = p.call(ctx, "", request{"barrier_in", nil}, "barrier_out")
	}
	return err
}

// Get returns the value of a key, or [ErrNoValue].
func (p *PMIClient) Get(ctx context.Context, key string) (string, error) {
	if err := p.checkKey(key); err != nil {
		return "", p.errorf("get", key, "%w", err)
	}
	r, answer := request{"get", []field{{"kvsname", p.kvs}, {"key", key}}}, "get_result"
	if p.version == 2 {
		r, answer = request{"kvs-get", []field{{"key", key}}}, "kvs-get-response"
	}
	m, err := p.call(ctx, key, r, answer)
	var refused *refusal
	if errors.As(err, &refused) || err == nil && strings.EqualFold(m.get("found"), "false") {
		return "", p.errorf(r.cmd, key, "%w: the process manager answered %s", ErrNoValue, excerpt(m.raw))
	}
	if err != nil {
		return "", err
	}
	value := m.get("value")
	if value == "" {
		return "", p.unexpected(r.cmd, m, "a value")
	}
	return value, nil
}

// Close tells the process manager that this process will make no more calls, and closes the connection. After a failed call it only closes
// the connection.
func (p *PMIClient) Close() error {
	ctx, cancel := limited(context.Background(), closePMILimit)
	defer cancel()
	return p.close(ctx)
}

func (p *PMIClient) close(ctx context.Context) (err error) {
	if errors.Is(p.failed, os.ErrClosed) {
		return nil
	}
	if p.failed == nil {
		ack := "finalize_ack"
		if p.version == 2 {
			ack = "finalize-response"
		}
		_, err = p.call(ctx, "", request{"finalize", nil}, ack)
	}
	p.failed = os.ErrClosed
	return errors.Join(err, p.conn.Close())
}

func (p *PMIClient) checkKey(key string) error {
	if err := checkPMI(key); err != nil {
		return err
	}
	if i := strings.IndexByte(key, '='); i >= 0 {
		return fmt.Errorf(`byte %d is "=": keys have none`, i)
	}
	if len(key) > p.maxKey {
		return fmt.Errorf("the key has %d bytes: expected at most %d, the limit of the process manager", len(key), p.maxKey)
	}
	return nil
}

// A refusal is an answer with rc other than 0.
type refusal struct{ rc, text string }

func (r *refusal) Error() string {
	return fmt.Sprintf("the process manager refused it with rc=%s: %s", excerpt(r.rc), r.text)
}

// call sends a request and returns the answer, which must be the command want. Key is for errors, or "".
func (p *PMIClient) call(ctx context.Context, key string, r request, want string) (message, error) {
	if p.failed != nil {
		return message{}, p.errorf(r.cmd, key, "the connection cannot be used: %w", p.failed)
	}
	if ctx.Err() != nil {
		return message{}, p.errorf(r.cmd, key, "%w", context.Cause(ctx))
	}
	wire := p.version
	if r.cmd == "init" {
		wire = 1
	}
	m, err := p.exchange(ctx, r.encode(wire), wire)
	switch {
	case err != nil:
		err = p.errorf(r.cmd, key, "%w: expected %s, read %s", err, want, excerpt(m.raw))
	case m.cmd != want:
		err = p.unexpected(r.cmd, m, want)
	}
	if err != nil {
		p.failed = err
		return message{}, err
	}
	if rc := m.get("rc"); rc != "" && rc != "0" {
		return m, p.errorf(r.cmd, key, "%w", &refusal{rc, excerpt(m.raw)})
	}
	return m, nil
}

// exchange writes a request and reads one answer. The end of ctx interrupts it.
func (p *PMIClient) exchange(ctx context.Context, r string, wire int) (message, error) {
	if n := p.answers.Buffered(); n > 0 {
		return message{}, fmt.Errorf("the process manager has sent more after its answer to the call before, %d bytes", n)
	}
	if err := p.conn.SetDeadline(time.Time{}); err != nil {
		return message{}, err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = p.conn.SetDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	_, err := io.WriteString(p.conn, r)
	var m message
	if err == nil {
		m, err = decode(p.answers, wire)
	}
	if !stop() {
		<-interrupted
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = context.Cause(ctx)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("the process manager has closed the connection: %w", err)
	}
	return m, err
}

func (p *PMIClient) errorf(call, key, format string, args ...any) error {
	of := ""
	if key != "" {
		of = fmt.Sprintf(" of the key %s", excerpt(key))
	}
	return fmt.Errorf("launch: PMI-%d %s%s: "+format, slices.Concat([]any{p.version, call, of}, args)...)
}

func (p *PMIClient) unexpected(call string, m message, want string) error {
	return p.errorf(call, "", "the process manager answered %s: expected %s", excerpt(m.raw), want)
}
