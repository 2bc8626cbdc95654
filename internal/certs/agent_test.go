package certs

import (
	"context"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/internal/certs/certstest"
)

// agentFiles are those of a section that has an agent.
func agentFiles(address string, domains ...string) Files {
	return Files{Section: "downstream.tls", Hop: Downstream, Agent: address, TrustDomains: domains}
}

// context509 is what an agent sends: an SVID of one.test, and bundles by trust domain.
func context509(t *testing.T, by *certstest.Authority, c x509.Certificate, bundles map[string][]*certstest.Authority) *workloadapi.X509Context {
	t.Helper()
	made := by.IssueSVID(t, "spiffe://one.test/relay", c)
	svid, err := x509svid.Parse(made.Cert, made.Key)
	if err != nil {
		t.Fatal(err)
	}
	set := x509bundle.NewSet()
	for name, authorities := range bundles {
		b := x509bundle.New(domain(name))
		for _, a := range authorities {
			b.AddX509Authority(a.Cert)
		}
		set.Add(b)
	}
	return &workloadapi.X509Context{SVIDs: []*x509svid.SVID{svid}, Bundles: set}
}

// What an agent sent is reminded of as files are: an SVID that it has not renewed, and a
// trust domain of which it has no bundle. An authority that is being replaced is no trouble.
func TestAgentReminders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, said := time.Now(), &told{}
		f := NewFollower(Options{Log: slog.New(slog.NewTextHandler(said, nil)), Observer: said, Changed: func() { said.changed.Add(1) }})
		d, err := f.Follow(agentFiles("unix:///agent.sock", "one.test", "two.test"))
		if err != nil {
			t.Fatal(err)
		}
		if m, err := d.Usable(); err == nil || !strings.Contains(err.Error(), "downstream.tls.spiffe.workload_api: the agent at unix:///agent.sock has sent no certificate yet") {
			t.Errorf("before the first answer there is %v, %v", m, err)
		}
		ends := func(after time.Duration) *certstest.Authority {
			return certstest.NewAuthorityFrom(t, x509.Certificate{NotBefore: begin.Add(-time.Hour), NotAfter: begin.Add(after)})
		}
		old, next := ends(2*time.Hour), ends(1000*time.Hour)
		bundles := map[string][]*certstest.Authority{"one.test": {old, next}, "three.test": {ends(time.Hour)}}
		f.sent(d.agent, context509(t, next, x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: begin, NotAfter: begin.Add(3 * time.Hour)}, bundles))
		if m, err := d.Usable(); err != nil || serial(d) != 1 || len(m.Authorities) != 2 || said.changed.Load() != 1 {
			t.Fatalf("after the first answer there is %v, %v, and it was told %d times", m, err, said.changed.Load())
		}
		time.Sleep(time.Minute)
		f.look()
		time.Sleep(time.Hour + 20*time.Minute) // in the last third of the old authority's life
		f.look()
		if said.lines("WARN") != 1 || said.lines(`the agent at unix:///agent.sock has no bundle of \"two.test\"`) != 1 {
			t.Errorf("the log is\n%s", said)
		}
		time.Sleep(time.Until(begin.Add(2*time.Hour + time.Minute)))
		f.look()
		if said.lines("WARN") != 2 || said.lines("see why the agent has not renewed it") != 1 {
			t.Errorf("the log is\n%s", said)
		}
		// One that has expired is no better than one that has not.
		f.sent(d.agent, context509(t, next, x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: begin, NotAfter: begin.Add(time.Hour)}, bundles))
		if serial(d) != 1 || said.lines("the SPIFFE agent does not answer") != 0 || said.lines("what the SPIFFE agent sends cannot be used") != 1 || !f.States()[0].Stale {
			t.Errorf("serial number %d is in use, states are %+v, and the log is\n%s", serial(d), f.States(), said)
		}
		changed := said.changed.Load()
		time.Sleep(time.Hour)
		f.look()
		if _, ok := d.Expired(time.Now()); !ok || said.changed.Load() != changed+1 || said.lines("level=ERROR") != 1 {
			t.Errorf("it has expired: %v, it was told %d times, and the log is\n%s", ok, said.changed.Load(), said)
		}
		f.sent(d.agent, context509(t, next, x509.Certificate{SerialNumber: big.NewInt(3), NotBefore: begin, NotAfter: begin.Add(9 * time.Hour)}, bundles))
		if serial(d) != 3 || f.States()[0].Stale {
			t.Errorf("serial number %d is in use, and states are %+v", serial(d), f.States())
		}
	})
}

// follows runs a follower until end is called.
func follows(t *testing.T, o Options) (f *Follower, said *told, end func()) {
	t.Helper()
	said = &told{}
	o.Log, o.Observer = slog.New(slog.NewTextHandler(said, nil)), said
	f = NewFollower(o)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	return f, said, func() { cancel(); running.Wait() }
}

// However many sections name an agent, it is listened to once, and no longer when none does.
func TestAgentIsListenedToOnce(t *testing.T) {
	agent, one := certstest.NewAgent(t, t.TempDir()), certstest.NewAuthority(t, "one")
	agent.Give(one.IssueSVID(t, "spiffe://one.test/relay", x509.Certificate{}), []*certstest.Authority{one}, nil)
	agent.Start(t)
	f, said, end := follows(t, Options{Settle: time.Millisecond})
	defer end()
	follow := func() *Followed {
		d, err := f.Follow(agentFiles(agent.Address(), "one.test"))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	a, b := follow(), follow()
	eventually(t, "both have the SVID", func() bool { return a.Material().Pair != nil && b.Material().Pair != nil })
	if n := agent.Streams(); n != 1 {
		t.Errorf("%d streams, want one", n)
	}
	a.Close()
	c := follow()
	if m, err := c.Usable(); err != nil {
		t.Errorf("a section that comes later has %v, %v", m, err)
	}
	other := agentFiles(agent.Address(), "one.test")
	other.Section = "upstream.fallbacks[0].tls"
	if err := c.Switch(other); err != nil || c.Material().Pair == nil || c.Files().CertKey() != "upstream.fallbacks[0].tls.spiffe.workload_api" {
		t.Errorf("a section that is called otherwise has %+v of %s, %v", c.Material(), c.Files().CertKey(), err)
	}
	b.Close()
	c.Close()
	eventually(t, "nobody listens", func() bool { return agent.Streams() == 0 })
	if said.lines("WARN") != 0 {
		t.Errorf("the log is\n%s", said)
	}
}

// Each way in which an agent gives nothing is said once, and it is asked again.
func TestAgentGivesNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		refuses error
		says    string
		asked   int // times, as often as a quick test can wait for
	}{
		"no entry":               {status.Error(codes.PermissionDenied, "no identity issued"), "no identity issued", 2},
		"it calls it wrong":      {status.Error(codes.InvalidArgument, "I do not like it"), "I do not like it", 5},
		"it ends it as we would": {status.Error(codes.Canceled, "stopping"), "stopping", 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent, one := certstest.NewAgent(t, t.TempDir()), certstest.NewAuthority(t, "one")
			agent.Refuse(tt.refuses)
			agent.Start(t)
			f, said, end := follows(t, Options{Settle: time.Millisecond, Persist: 50 * time.Millisecond})
			defer end()
			d, err := f.Follow(agentFiles(agent.Address(), "one.test"))
			if err != nil {
				t.Fatal(err)
			}
			if m, err := d.Await(t.Context()); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("there is %v, %v", m, err)
			}
			eventually(t, "it is asked again and again", func() bool { return agent.Asked() >= tt.asked })
			agent.Give(one.IssueSVID(t, "spiffe://one.test/relay", x509.Certificate{}), []*certstest.Authority{one}, nil)
			eventually(t, "what it sends is used", func() bool { return d.Material().Pair != nil })
			if said.lines("WARN") != 1 || said.lines("the SPIFFE agent has sent no certificate yet") != 1 || said.lines("answers again") != 1 {
				t.Errorf("the log is\n%s", said)
			}
		})
	}
}

// An agent that takes the question and never answers is named, too, and nobody waits for it
// any more then.
func TestAgentIsSilent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path) // and nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, said, end := follows(t, Options{Settle: time.Millisecond, Persist: 50 * time.Millisecond})
	defer end()
	d, err := f.Follow(agentFiles("unix://"+path, "one.test"))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := d.Await(t.Context()); err == nil || !strings.Contains(err.Error(), "it has said nothing for 50ms") {
		t.Errorf("there is %v, %v", m, err)
	}
	if said.lines("WARN") != 1 || said.lines(path) != 1 {
		t.Errorf("the log is\n%s", said)
	}
}
