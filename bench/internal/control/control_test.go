package control

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/bench/internal/world"
)

// memo is a Source that writes down what it is told.
type memo struct {
	told []string
	fail error
}

func (m *memo) World(s world.Spec) error {
	m.told = append(m.told, fmt.Sprintf("world of %d", s.Clusters))
	return m.fail
}

func (m *memo) Step(n int) error {
	m.told = append(m.told, fmt.Sprint("step ", n))
	return nil
}

func (m *memo) Stats() (Stats, error) { return Stats{Streams: int64(len(m.told))}, nil }

func TestRemote(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &memo{}
	served := make(chan error)
	go func() { served <- Serve(l, m) }()
	r, err := Dial(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.World(world.Spec{Clusters: 3}); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		if err := r.Step(n); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := r.Stats() // answered after what was said before
	if err != nil || stats.Streams != 4 {
		t.Errorf("stats are %+v (%v), want 4", stats, err)
	}
	if got, want := strings.Join(m.told, ", "), "world of 3, step 1, step 2, step 3"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	m.fail = errors.New("no room")
	if err := r.World(world.Spec{}); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("a world that cannot be set up: %v", err)
	}
	r.Close()
	l.Close()
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	for _, line := range []string{"dance", "step one", "step", ""} {
		c := struct {
			io.Reader
			io.Writer
		}{strings.NewReader(line + "\n"), io.Discard}
		if err := obey(c, &memo{}); err == nil {
			t.Errorf("%q is obeyed", line)
		}
	}
	var answer bytes.Buffer
	c := struct {
		io.Reader
		io.Writer
	}{strings.NewReader("world {\n"), &answer}
	if err := obey(c, &memo{}); err != nil || !strings.HasPrefix(answer.String(), "error ") {
		t.Errorf("a world that cannot be read: %q (%v)", answer.String(), err)
	}
}
