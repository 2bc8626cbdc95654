// Package adminclient asks a running relay's admin endpoint, for the commands that show what a relay does.
//
// A Client may be used by several goroutines. Answers are bounded, and errors say where nobody answered, or what
// the relay said, and what to do. Limitation: it speaks plain HTTP to loopback addresses and Unix sockets, which is
// where an admin endpoint listens.
package adminclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/xds-relay/xds-relay/internal/config"
)

// maxAnswer bounds an answer in bytes: a page of a list is far below it.
const maxAnswer = 256 << 20

// Client asks one relay.
type Client struct {
	address string
	http    *http.Client
}

// New returns a Client of the admin endpoint at an address: host:port or unix:///path.
func New(address string) (*Client, error) {
	network, dial, err := config.SplitListen(address)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	if host, port, err := net.SplitHostPort(dial); network == "tcp" && err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			dial = net.JoinHostPort("localhost", port) // what listens on all addresses listens here
		}
	}
	var d net.Dialer
	return &Client{address, &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, network, dial) },
	}}}, nil
}

// Close closes the connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Address is where the relay is asked.
func (c *Client) Address() string { return c.address }

// StatusError is an answer that is not 200 OK.
type StatusError struct {
	Address, Path string
	Code          int    // of HTTP
	Text          string // what the relay said
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s answers %s with %d: %s", e.Address, e.Path, e.Code, e.Text)
}

// Get decodes the JSON that a path answers with.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	body, err := c.do(ctx, http.MethodGet, path, query)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("the answer of %s to %s cannot be read: %w; is this a relay of another version?", c.address, path, err)
	}
	return nil
}

// Text returns what a path answers, as it is.
func (c *Client) Text(ctx context.Context, path string, query url.Values) (string, error) {
	return c.text(ctx, http.MethodGet, path, query)
}

// Post has the relay do something, and returns what it says of it.
func (c *Client) Post(ctx context.Context, path string, query url.Values) (string, error) {
	return c.text(ctx, http.MethodPost, path, query)
}

func (c *Client) text(ctx context.Context, method, path string, query url.Values) (string, error) {
	body, err := c.do(ctx, method, path, query)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	return strings.TrimSpace(string(text)), err
}

// Event is one of a stream of server-sent events.
type Event struct {
	ID, Name string
	Data     []byte
}

// Stream yields server-sent events until the context or the stream ends. The last one has the error, if there is any.
func (c *Client) Stream(ctx context.Context, path string, query url.Values) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		body, err := c.do(ctx, http.MethodGet, path, query)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer body.Close()
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 1<<20)
		var e Event
		for lines.Scan() {
			if e.take(lines.Bytes()) {
				if !yield(e, nil) {
					return
				}
				e = Event{}
			}
		}
		if err := lines.Err(); err != nil && ctx.Err() == nil {
			yield(Event{}, fmt.Errorf("the stream of %s from %s has ended: %w", path, c.address, err))
		}
	}
}

// take takes in a line, and reports whether the event is complete.
func (e *Event) take(line []byte) (complete bool) {
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "":
		return len(line) == 0 && e.Data != nil // else it is a comment
	case "id":
		e.ID = string(value)
	case "event":
		e.Name = string(value)
	case "data":
		if e.Data != nil {
			e.Data = append(e.Data, '\n')
		}
		e.Data = append(append(make([]byte, 0, len(e.Data)+len(value)), e.Data...), value...)
	}
	return false
}

func (c *Client) do(ctx context.Context, method, path string, query url.Values) (io.ReadCloser, error) {
	target := (&url.URL{Scheme: "http", Host: "localhost", Path: path, RawQuery: query.Encode()}).String()
	req, err := http.NewRequestWithContext(ctx, method, target, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("%s does not answer %s in time; the relay may be stuck, or something else listens there", c.address, path)
	case errors.Is(err, context.Canceled):
		return nil, context.Canceled
	case err != nil && !failedToDial(err):
		return nil, fmt.Errorf("what listens at %s does not answer %s as a relay does: %w; is this admin.listen?", c.address, path, cause(err))
	case err != nil:
		return nil, fmt.Errorf("nobody answers at %s: %w; is the relay running, with this as admin.listen?", c.address, cause(err))
	case resp.StatusCode == http.StatusOK:
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return nil, err
	}
	return nil, &StatusError{c.address, path, resp.StatusCode, strings.TrimSpace(string(text))}
}

// failedToDial: there was no connection at all.
func failedToDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// cause is an error without the URL that it was met at.
func cause(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
