package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// servers is the connection to one server or one cluster. No call is ever sent
// twice, but for a node that named another one instead of running it.
type servers struct {
	client  rueidis.Client
	cluster bool
	options Options
	places  chan struct{} // one for each call under way
}

const (
	keepAlive    = time.Second // between probes of a silent connection
	maxRedirects = 5           // of one call, from node to node
)

func connect(ctx context.Context, t target, o Options) (*servers, error) {
	if o.Username != "" {
		t.username = o.Username
	}
	if o.Password != "" {
		t.password = o.Password
	}
	option := rueidis.ClientOption{
		InitAddress: t.hosts, Username: t.username, Password: t.password, SelectDB: t.database,
		ClientName: "counterfoil", ClientSetInfo: rueidis.DisableClientSetInfo,
		DisableRetry: true, DisableCache: true,
		PipelineMultiplex: -1, // one shared connection to each node
		BlockingPoolSize:  o.calls,
		ConnWriteTimeout:  o.ReplyTimeout,
		Dialer:            net.Dialer{Timeout: o.DialTimeout, KeepAlive: keepAlive},
		DialCtxFn:         dialer(t, o),
		ClusterOption:     rueidis.ClusterOption{MaxMovedRedirections: maxRedirects},
	}
	type connected struct {
		client rueidis.Client
		err    error
	}
	result := make(chan connected, 1)
	go func() {
		client, err := rueidis.NewClient(option)
		result <- connected{client, err}
	}()
	var c connected
	select {
	case c = <-result:
	case <-ctx.Done():
		go func() {
			if late := <-result; late.err == nil {
				late.client.Close()
			}
		}()
		return nil, unavailable(ctx.Err())
	}
	if c.err != nil {
		if len(t.hosts) > 1 && strings.Contains(c.err.Error(), "cluster support disabled") {
			return nil, errors.New("redis: several hosts are named, and they are no cluster; name one")
		}
		return nil, unavailable(c.err)
	}
	cluster := c.client.Mode() == rueidis.ClientModeCluster
	if cluster && t.database != 0 {
		c.client.Close()
		return nil, errors.New("redis: a cluster has database 0 only")
	}
	return &servers{client: c.client, cluster: cluster, options: o, places: make(chan struct{}, o.calls)}, nil
}

// dialer connects, and marks its errors as such.
func dialer(t target, o Options) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return func(ctx context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		conn, err := func() (net.Conn, error) {
			if o.dial != nil {
				return o.dial(ctx, address)
			}
			if !t.tls {
				return d.DialContext(ctx, "tcp", address)
			}
			config := &tls.Config{MinVersion: tls.VersionTLS12}
			if o.TLS != nil {
				config = o.TLS.Clone()
			}
			secure := tls.Dialer{NetDialer: d, Config: config}
			return secure.DialContext(ctx, "tcp", address)
		}()
		if err != nil {
			return nil, &notSentError{fmt.Errorf("cannot connect: %w", err)}
		}
		return conn, nil
	}
}

// enter takes a place for a call under way, so that a server which does not
// answer holds up a bounded number of them.
func (s *servers) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.places <- struct{}{}:
		if ctx.Err() == nil {
			return func() { <-s.places }, nil
		}
		<-s.places // it became free too late
	case <-ctx.Done():
	}
	return nil, &notSentError{fmt.Errorf("%d calls are under way already: %w", cap(s.places), ctx.Err())}
}

// do runs one command.
func (s *servers) do(ctx context.Context, build func(rueidis.Builder) rueidis.Completed) (rueidis.RedisMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.ReplyTimeout)
	defer cancel()
	leave, err := s.enter(ctx)
	if err != nil {
		return rueidis.RedisMessage{}, err
	}
	defer leave()
	return s.client.Do(ctx, build(s.client.B())).ToMessage()
}

// run has a script run where its first key is, and gives its answer. The error
// is the connection's or the server's own.
func (s *servers) run(ctx context.Context, sc *script, keys, args []string) (rueidis.RedisMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.ReplyTimeout)
	defer cancel()
	leave, err := s.enter(ctx)
	if err != nil {
		return rueidis.RedisMessage{}, err
	}
	defer leave()
	return patiently(ctx, func() (rueidis.RedisMessage, error) {
		answer, err := s.client.Do(ctx, s.evalsha(sc, keys, args)).ToMessage()
		if reply, ok := rueidis.IsRedisErr(err); ok && reply.IsNoScript() {
			answer, err = s.client.Do(ctx, s.eval(sc, keys, args)).ToMessage()
		}
		return answer, err
	})
}

func (s *servers) evalsha(sc *script, keys, args []string) rueidis.Completed {
	return s.client.B().Evalsha().Sha1(sc.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func (s *servers) eval(sc *script, keys, args []string) rueidis.Completed {
	return s.client.B().Eval().Script(sc.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// patiently repeats a call, for half a second at most, that a node has refused
// because some of the keys are on their way to another one.
func patiently(ctx context.Context, call func() (rueidis.RedisMessage, error)) (rueidis.RedisMessage, error) {
	for wait := 2 * time.Millisecond; ; wait *= 2 {
		answer, err := call()
		if reply, ok := rueidis.IsRedisErr(err); !ok || !reply.IsTryAgain() || wait > 256*time.Millisecond {
			return answer, err
		}
		again := time.NewTimer(wait)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return answer, err
		}
	}
}

// done is how a script says that it has written.
const done = "ok"

// runReplicated is run, followed on the same connection by waiting until the
// primary and all replicas have on disk what it wrote. With an error that is an
// [unconfirmedError] there is an answer too.
func (s *servers) runReplicated(ctx context.Context, sc *script, keys, args []string) (rueidis.RedisMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.ReplyTimeout)
	defer cancel()
	leave, err := s.enter(ctx)
	if err != nil {
		return rueidis.RedisMessage{}, err
	}
	defer leave()
	return patiently(ctx, func() (answer rueidis.RedisMessage, err error) {
		build, node, asking := s.evalsha, s.client, false
		for range maxRedirects {
			answer, err = s.replicated(ctx, node, asking, build(sc, keys, args))
			reply, ok := rueidis.IsRedisErr(err)
			if !ok {
				return answer, err
			}
			if reply.IsNoScript() {
				build = s.eval
				continue
			}
			address, moved := reply.IsMoved()
			if !moved {
				address, asking = reply.IsAsk()
			}
			if !moved && !asking {
				return answer, err
			}
			if node = s.client.Nodes()[address]; node == nil {
				return answer, err // the next call finds a fresh map of the cluster
			}
		}
		return answer, err
	})
}

func (s *servers) replicated(ctx context.Context, node rueidis.Client, asking bool, command rueidis.Completed) (rueidis.RedisMessage, error) {
	connection, release := node.Dedicate()
	defer release()
	commands := []rueidis.Completed{command}
	if asking {
		commands = []rueidis.Completed{connection.B().Asking().Build(), command}
	}
	results := connection.DoMulti(ctx, commands...)
	answer, err := results[len(results)-1].ToMessage()
	if err != nil {
		return answer, err
	}
	if status, err := answer.ToString(); err != nil || status != done {
		return answer, nil // nothing was written
	}
	return answer, s.await(ctx, connection)
}

// await waits until the primary and all replicas have on disk what was written
// on a connection.
func (s *servers) await(ctx context.Context, connection rueidis.DedicatedClient) error {
	replicas, limit := int64(s.options.Replicas), s.options.ReplicaTimeout.Milliseconds()
	results := connection.DoMulti(ctx,
		// A replica answers WAITAOF when it is asked, before it has synced what it just got, and then once a second. Asked
		// first whether it has got it, it has synced it when WAITAOF asks: milliseconds instead of a second.
		connection.B().Wait().Numreplicas(replicas).Timeout(limit).Build(),
		connection.B().Waitaof().Numlocal(1).Numreplicas(replicas).Timeout(limit).Build())
	confirmed, err := results[1].AsIntSlice()
	switch {
	case err != nil:
		return &unconfirmedError{err.Error()}
	case len(confirmed) != 2 || confirmed[0] < 1:
		return &unconfirmedError{"the primary did not confirm that it is on its disk"}
	case confirmed[1] < replicas:
		return &unconfirmedError{fmt.Sprintf("%d of %d replicas confirmed in time that it is on their disks", confirmed[1], replicas)}
	}
	return nil
}

// unconfirmedError: a change was made, and may not be on every disk.
type unconfirmedError struct{ why string }

func (e *unconfirmedError) Error() string { return e.why }

// close ends all connections.
func (s *servers) close() { s.client.Close() }

// names lists the names of scopes from one on, at most limit of each hash tag.
func (s *servers) names(ctx context.Context, l layout, from string, limit int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.ReplyTimeout)
	defer cancel()
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	commands := make([]rueidis.Completed, groups)
	for group := range commands {
		commands[group] = s.client.B().Zrangebylex().Key(l.scopes(group)).Min("["+from).Max("+").Limit(0, int64(limit)).Build()
	}
	var names []string
	for _, result := range s.client.DoMulti(ctx, commands...) {
		some, err := result.AsStrSlice()
		if err != nil {
			return nil, err
		}
		names = append(names, some...)
	}
	return names, nil
}
