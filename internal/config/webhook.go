package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"

	"github.com/xds-relay/xds-relay/internal/events"
)

// Webhook is where the relay posts events, such as a NACK that the control plane does not see; see
// docs/operations.md. A receiver that is slow or away loses the oldest events, and slows nobody.
type Webhook struct {
	// URL is where events are posted, as JSON: http://host or https://host, with a path if
	// need be. A certificate must chain to the system's roots. Redirects are not followed.
	// A token belongs in headers: the URL is shown. Empty means that events go nowhere.
	// Default: "".
	URL string `yaml:"url"`

	// Headers are sent with each POST. Names are in lower case.
	// Default: {}.
	Headers map[string]Header `yaml:"headers"`

	// Events lists the kinds of events that are posted. Empty means all.
	// Default: [].
	Events []EventKind `yaml:"events"`
}

// EventKind is the type of the entries of admin.webhook.events.
type EventKind events.Kind

// Values lists the values that may be written.
func (EventKind) Values() (values []string) {
	for _, k := range events.Kinds() {
		values = append(values, string(k))
	}
	return values
}

// Enabled reports whether events go anywhere.
func (w *Webhook) Enabled() bool { return w.URL != "" }

// Kinds are those of the events that are posted; none: all.
func (w *Webhook) Kinds() (kinds []events.Kind) {
	for _, k := range w.Events {
		kinds = append(kinds, events.Kind(k))
	}
	return kinds
}

func (v *validator) webhook() {
	w := &v.c.Admin.Webhook
	v.ownHeaders("admin.webhook.headers", w.Headers)
	for i, k := range w.Events {
		if slices.Contains(w.Events[:i], k) {
			v.fail(fmt.Sprintf("admin.webhook.events[%d]", i), "", "%q is listed twice", string(k))
		}
	}
	if !w.Enabled() {
		if len(w.Headers) > 0 {
			v.fail("admin.webhook.headers", "set admin.webhook.url", "there is no webhook to send them to")
		}
		if len(w.Events) > 0 {
			v.fail("admin.webhook.events", "set admin.webhook.url", "there is no webhook to post them to")
		}
		return
	}
	switch u, err := url.Parse(w.URL); {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		v.fail("admin.webhook.url", "for example https://hooks.example.com/xds-relay", "is not http://host or https://host")
	case u.User != nil:
		v.fail("admin.webhook.url", "put it in admin.webhook.headers, as authorization", "has a name or a password in it, which would be shown")
	case u.Fragment != "":
		v.fail("admin.webhook.url", "remove what begins with #", "has a fragment, which is not sent")
	}
}

// plainWebhook: what clients and control planes say would go over a network in plaintext.
func (v *validator) plainWebhook() {
	u, err := url.Parse(v.c.Admin.Webhook.URL)
	if err != nil || u.Scheme != "http" {
		return
	}
	ip := net.ParseIP(u.Hostname())
	if u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		return
	}
	v.fail("admin.webhook.url", "write https://", "events, with names of clients and resources, and the headers go to %s in plaintext", u.Host)
}
