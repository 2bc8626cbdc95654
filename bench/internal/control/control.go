// Package control is the protocol by which the load generator tells a server under
// test what to serve, the same for all servers: lines of text over TCP. It
// triggers changes, and never waits for their effect. There is no authentication:
// it is for loopback.
//
//	world {"seed":1,…}   serve this world, as of step 0; answered with ok
//	step 17              take step 17: no answer
//	stats                answered with a JSON object of what was seen
package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/bench/internal/world"
)

// Source is where changes come from: a server under test, or the control plane
// behind it.
type Source interface {
	// World replaces what is served.
	World(world.Spec) error
	// Step takes the next step. It returns before anybody has heard of it.
	Step(n int) error
	// Stats are what the source has seen so far.
	Stats() (Stats, error)
}

// Stats are what a source has seen since its world was set.
type Stats struct {
	Streams   int64 `json:"streams"`   // that were opened
	Responses int64 `json:"responses"` // that were sent
	Resources int64 `json:"resources"` // in them
	Bytes     int64 `json:"bytes"`     // of them
}

// Serve carries out the commands that come over a listener, one connection
// at a time, until the listener is closed.
func Serve(l net.Listener, s Source) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		err = obey(c, s)
		c.Close()
		if err != nil {
			return fmt.Errorf("control: %w", err)
		}
	}
}

func obey(c io.ReadWriter, s Source) error {
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		command, rest, _ := strings.Cut(lines.Text(), " ")
		switch command {
		case "world":
			var spec world.Spec
			err := json.Unmarshal([]byte(rest), &spec)
			if err == nil {
				err = s.World(spec)
			}
			answer := "ok"
			if err != nil {
				answer = "error " + err.Error()
			}
			if _, err := fmt.Fprintln(c, answer); err != nil {
				return err
			}
		case "step":
			n, err := strconv.Atoi(rest)
			if err != nil {
				return fmt.Errorf("%q: %w", lines.Text(), err)
			}
			if err := s.Step(n); err != nil {
				return err
			}
		case "stats":
			stats, err := s.Stats()
			if err != nil {
				return err
			}
			if err := json.NewEncoder(c).Encode(stats); err != nil {
				return err
			}
		default:
			return fmt.Errorf("no such command: %q", lines.Text())
		}
	}
	return nil
}

// Remote is a Source in another process.
type Remote struct {
	mu    sync.Mutex
	conn  net.Conn
	lines *bufio.Scanner
}

// answerWithin is how long a world may take to be set up.
const answerWithin = 2 * time.Minute

// Dial connects to a Source.
func Dial(address string) (*Remote, error) {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return &Remote{conn: c, lines: bufio.NewScanner(c)}, nil
}

// Close ends the connection.
func (r *Remote) Close() error { return r.conn.Close() }

// World implements Source.
func (r *Remote) World(s world.Spec) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	answer, err := r.ask("world " + string(text))
	if err != nil {
		return err
	}
	if answer != "ok" {
		return fmt.Errorf("control: set up the world: %s", strings.TrimPrefix(answer, "error "))
	}
	return nil
}

// Step implements Source.
func (r *Remote) Step(n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := fmt.Fprintf(r.conn, "step %d\n", n)
	return err
}

// Stats implements Source.
func (r *Remote) Stats() (s Stats, err error) {
	answer, err := r.ask("stats")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(answer), &s)
}

func (r *Remote) ask(command string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(r.conn, command); err != nil {
		return "", fmt.Errorf("control: %w", err)
	}
	if !r.lines.Scan() {
		err := r.lines.Err()
		if err == nil {
			err = errors.New("the server has closed the connection; its own output says why")
		}
		return "", fmt.Errorf("control: %w", err)
	}
	return r.lines.Text(), r.conn.SetDeadline(time.Time{})
}
