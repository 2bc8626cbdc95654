package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/internal/header"
)

// WebhookOptions say where events go.
type WebhookOptions struct {
	// URL is where they are posted. Headers are read for each attempt; nil: there are none.
	URL     string
	Headers func() ([]header.Header, error)
	// Kinds of events that go there; none: all.
	Kinds []Kind
	// Relay is the relay's name in what is posted.
	Relay    string
	Log      *slog.Logger
	Observer WebhookObserver

	// First and Longest are the waits before an attempt is repeated; zero: 1 s and 1 min. GiveUp is how long the same events are
	// tried; zero: 10 min.
	First, Longest, GiveUp time.Duration
}

// WebhookObserver counts what becomes of events. Its methods may be called from any goroutine.
type WebhookObserver interface {
	// WebhookPosted: an attempt has succeeded, or failed.
	WebhookPosted(ok bool)
	// WebhookDropped: so many events were not delivered, because the receiver is too slow, or refuses them.
	WebhookDropped(n int)
}

// Post is the body of what is posted.
type Post struct {
	Relay string `json:"relay"`
	// Events are in order, and Lost is how many before them were not delivered.
	Events []Event `json:"events"`
	Lost   int     `json:"lost,omitempty"`
}

const (
	postEvents  = 50               // in one POST
	postTimeout = 10 * time.Second // of one attempt
	warnEvery   = time.Minute      // how often the log says of a webhook that fails why
)

// Webhook posts the events of a Ring while Run runs. It reads them at its own pace: a receiver that hangs loses the
// oldest, and slows nobody.
type Webhook struct {
	o      WebhookOptions
	http   *http.Client
	reader *Reader

	warned time.Time // zero: the last attempt has succeeded
	lost   int       // that no POST has told of yet
}

// NewWebhook returns one that posts all events from now on, and those that are there, once it runs.
func NewWebhook(r *Ring, o WebhookOptions) *Webhook {
	for _, d := range []struct {
		set     *time.Duration
		without time.Duration
	}{{&o.First, time.Second}, {&o.Longest, time.Minute}, {&o.GiveUp, 10 * time.Minute}} {
		if *d.set == 0 {
			*d.set = d.without
		}
	}
	return &Webhook{
		o: o, reader: r.Read(0),
		http: &http.Client{
			Timeout:       postTimeout,
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConns: 1, IdleConnTimeout: time.Minute},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Run posts events until ctx ends. What is not delivered by then is lost.
func (w *Webhook) Run(ctx context.Context) {
	defer w.http.CloseIdleConnections()
	defer w.reader.Close()
	for ctx.Err() == nil {
		batch, lost := w.reader.Next(ctx, postEvents, time.Hour)
		w.drop(lost)
		if len(w.o.Kinds) > 0 {
			batch = slices.DeleteFunc(batch, func(e Event) bool { return !slices.Contains(w.o.Kinds, e.Kind) })
		}
		if len(batch) > 0 {
			w.deliver(ctx, batch)
		}
	}
}

func (w *Webhook) drop(n int) {
	if n > 0 {
		w.lost += n
		w.o.Observer.WebhookDropped(n)
	}
}

// deliver posts events until they are taken, or are given up.
func (w *Webhook) deliver(ctx context.Context, batch []Event) {
	body, err := json.Marshal(Post{w.o.Relay, batch, w.lost})
	if err != nil { // it has nothing that could fail
		w.drop(len(batch))
		return
	}
	begin, wait := time.Now(), w.o.First
	for {
		err := w.post(ctx, body)
		if ctx.Err() != nil {
			return
		}
		w.o.Observer.WebhookPosted(err == nil)
		w.tell(err)
		if err == nil {
			w.lost = 0
			return
		}
		if refused := (*refusedError)(nil); errors.As(err, &refused) || time.Since(begin) > w.o.GiveUp {
			w.drop(len(batch))
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration((0.8 + 0.4*rand.Float64()) * float64(wait))): // so that relays do not come all at once
		}
		wait = min(2*wait, w.o.Longest)
	}
}

// refusedError is an answer that another attempt would get again.
type refusedError struct{ error }

// post makes one attempt. Its error never has the URL's path, nor a header.
func (w *Webhook) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.o.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("admin.webhook.url is no URL")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "xds-relay")
	if w.o.Headers != nil {
		headers, err := w.o.Headers()
		if err != nil {
			return fmt.Errorf("a header cannot be read: %w", err)
		}
		for _, h := range headers {
			req.Header.Set(h.Name, string(h.Value))
		}
	}
	resp, err := w.http.Do(req)
	if at := (*url.Error)(nil); errors.As(err, &at) {
		err = at.Err
	}
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
	resp.Body.Close()
	switch code := resp.StatusCode; {
	case code/100 == 2:
		return nil
	case code/100 == 3:
		return fmt.Errorf("it answers %s, a redirect, which is not followed: set admin.webhook.url to where it leads", resp.Status)
	case code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge, code == http.StatusUnprocessableEntity:
		return &refusedError{fmt.Errorf("it refuses what is posted: %s", resp.Status)}
	default:
		return fmt.Errorf("it answers %s", resp.Status)
	}
}

// tell logs that posting fails, now and then, and that it works again.
func (w *Webhook) tell(err error) {
	switch {
	case err == nil && !w.warned.IsZero():
		w.warned = time.Time{}
		w.o.Log.Info("the webhook takes events again", "host", host(w.o.URL))
	case err != nil && time.Since(w.warned) >= warnEvery:
		w.warned = time.Now()
		w.o.Log.Warn("the webhook does not take events; the latest are kept for it, and it is tried again: see admin.webhook", "host", host(w.o.URL), "err", err)
	}
}

// host is all of a URL that the log shows: the rest may be a credential.
func host(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "?"
	}
	return u.Host
}
