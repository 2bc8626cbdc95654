package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/header"
)

// receiver is where a webhook posts to.
type receiver struct {
	*httptest.Server
	answers chan int // the status of each answer; hang waits for it
	posts   chan Post
	tokens  chan string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{answers: make(chan int, 100), posts: make(chan Post, 100), tokens: make(chan string, 100)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		var p Post
		if err := json.Unmarshal(body, &p); err != nil || req.Method != http.MethodPost || req.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %q: %v", req.Method, body, err)
		}
		r.tokens <- req.Header.Get("x-token")
		r.posts <- p
		select {
		case code := <-r.answers:
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(code)
		case <-req.Context().Done():
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// tally counts what becomes of events.
type tally struct {
	mu                  sync.Mutex
	ok, failed, dropped int
	log                 bytes.Buffer
}

func (c *tally) WebhookPosted(ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok {
		c.ok++
	} else {
		c.failed++
	}
}

func (c *tally) WebhookDropped(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped += n
}

func (c *tally) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(p)
}

func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("ok %d failed %d dropped %d", c.ok, c.failed, c.dropped)
}

func (c *tally) options(r *receiver) WebhookOptions {
	return WebhookOptions{
		URL: r.URL + "/T0/canary-path", Relay: "edge-1", Log: slog.New(slog.NewTextHandler(c, nil)), Observer: c,
		First: time.Millisecond, Longest: 2 * time.Millisecond,
	}
}

// runs has a webhook run until end is called.
func runs(w *Webhook) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// TestWebhook: events are posted in order, once each, and again until they are taken; headers are read for each attempt; a redirect is not followed.
func TestWebhook(t *testing.T) {
	r, c, ring := newReceiver(t), new(tally), NewRing(nil)
	o := c.options(r)
	read := 0
	o.Headers = func() ([]header.Header, error) {
		if read++; read == 1 {
			return nil, errors.New("no such file")
		}
		return []header.Header{{Name: "x-token", Value: header.Value(fmt.Sprint("canary-token-", read))}}, nil
	}
	o.Kinds = []Kind{Nack, ControlPlaneLost}
	ring.Publish(Event{Kind: ControlPlaneLost, Message: "before it began"})
	end := runs(NewWebhook(ring, o))
	r.answers <- http.StatusInternalServerError
	r.answers <- http.StatusTemporaryRedirect
	r.answers <- http.StatusOK
	for range 3 {
		p := <-r.posts
		expect(t, "posted", said(p.Events), "control_plane_lost before it began 1")
		if p.Relay != "edge-1" || p.Lost != 0 {
			t.Errorf("%+v", p)
		}
	}
	if token := <-r.tokens; token != "canary-token-2" {
		t.Errorf("the token is %q", token)
	}
	ring.Publish(Event{Kind: ConfigReloaded, Message: "not wanted"})
	ring.Publish(nack(1, "no"))
	r.answers <- http.StatusBadRequest
	expect(t, "posted", said((<-r.posts).Events), "nack no 1")
	ring.Publish(nack(2, "no"))
	r.answers <- http.StatusNoContent
	if p := <-r.posts; p.Lost != 1 || len(p.Events) != 1 || p.Events[0].Client.Stream != 2 {
		t.Errorf("what was refused is posted again: %+v", p)
	}
	end()
	if got := c.String(); !strings.HasPrefix(got, "ok ") || !strings.HasSuffix(got, " failed 4 dropped 1") {
		t.Error(got)
	}
	log := c.log.String()
	if strings.Contains(log, "canary") || !strings.Contains(log, "a header cannot be read: no such file") || !strings.Contains(log, "the webhook takes events again") {
		t.Errorf("the log: %s", log)
	}
}

// TestWebhookHangs: who publishes does not wait for it, the oldest are lost, and the receiver is told how many.
func TestWebhookHangs(t *testing.T) {
	r, c, ring := newReceiver(t), new(tally), newRing(10, Again, time.Now, nil)
	end := runs(NewWebhook(ring, c.options(r)))
	ring.Publish(Event{Kind: ConfigReloaded, Message: "first"})
	<-r.posts // and it hangs
	for i := range 100 {
		ring.Publish(Event{Kind: ConfigReloaded, Message: fmt.Sprint(i)})
	}
	r.answers <- http.StatusOK
	r.answers <- http.StatusOK
	p := <-r.posts
	if p.Lost != 90 || len(p.Events) != 10 || p.Events[9].Message != "99" {
		t.Errorf("%d lost, %q", p.Lost, said(p.Events))
	}
	ring.Publish(Event{Kind: ConfigReloaded, Message: "last"})
	<-r.posts // and it hangs again
	end()
	if got := c.String(); got != "ok 2 failed 0 dropped 90" {
		t.Error(got)
	}
}

// TestWebhookGivesUp: events that are not taken for long are dropped, so that later ones are posted. What a redirect leads to is not
// asked, and the log says what to do.
func TestWebhookGivesUp(t *testing.T) {
	r, c, ring := newReceiver(t), new(tally), NewRing(nil)
	o := c.options(r)
	o.GiveUp = time.Nanosecond
	end := runs(NewWebhook(ring, o))
	ring.Publish(nack(1, "no"))
	r.answers <- http.StatusMovedPermanently
	<-r.posts
	ring.Publish(nack(2, "no"))
	r.answers <- http.StatusOK
	if p := <-r.posts; p.Lost != 1 {
		t.Errorf("%+v", p)
	}
	end()
	if log := c.log.String(); !strings.Contains(log, "a redirect, which is not followed: set admin.webhook.url to where it leads") {
		t.Errorf("the log: %s", log)
	}
}

// TestWebhookAway: the log says why nobody is there, and not the path of the URL, which may be a credential.
func TestWebhookAway(t *testing.T) {
	r, c, ring := newReceiver(t), new(tally), NewRing(nil)
	r.Close()
	o := c.options(r)
	o.GiveUp = time.Nanosecond
	w := NewWebhook(ring, o)
	defer w.reader.Close()
	w.deliver(t.Context(), []Event{nack(1, "no")})
	if log := c.log.String(); c.String() != "ok 0 failed 1 dropped 1" || strings.Contains(log, "canary") || !strings.Contains(log, "refused") {
		t.Errorf("%s: %s", c, log)
	}
}
