package config

import (
	"strings"
	"testing"
)

// TestWebhookMistakes: each is refused, and the message names the key.
func TestWebhookMistakes(t *testing.T) {
	for set, want := range map[string]string{
		`admin.webhook={url: "hooks.example.com/a"}`:                                          "admin.webhook.url: is not http://host or https://host",
		`admin.webhook={url: "ftp://hooks.example.com"}`:                                      "admin.webhook.url: is not http://host or https://host",
		`admin.webhook={url: "https://"}`:                                                     "admin.webhook.url: is not http://host or https://host",
		`admin.webhook={url: "https://me:canary@hooks.example.com"}`:                          "admin.webhook.url: has a name or a password in it, which would be shown",
		`admin.webhook={url: "https://hooks.example.com/#a"}`:                                 "admin.webhook.url: has a fragment",
		`admin.webhook={events: [nack]}`:                                                      "admin.webhook.events: there is no webhook to post them to",
		`admin.webhook={headers: {x-a: b}}`:                                                   "admin.webhook.headers: there is no webhook to send them to",
		`admin.webhook={url: "https://a.test", headers: {X-A: canary}}`:                       `admin.webhook.headers.X-A: "X-A" is not in lower case`,
		`admin.webhook={url: "https://a.test", events: [nak]}`:                                `admin.webhook.events[0]: unknown value "nak"`,
		`admin.webhook={url: "https://a.test", events: [nack, nack]}`:                         `admin.webhook.events[1]: "nack" is listed twice`,
		`admin.stale_after=-1s`:                                                               "admin.stale_after: must not be negative",
		`admin.webhook={url: "https://a.test", headers: {x-a: {file: /no, value: "canary"}}}`: "admin.webhook.headers.x-a.file: there is a value, too",
	} {
		c, err := Load("", []string{set})
		if err == nil {
			err = c.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
		if err != nil && strings.Contains(set, "headers") && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error shows a header: %v", set, err)
		}
	}
	c, err := Load("", []string{`admin.webhook={url: "https://a.test/b?c=d", headers: {authorization: {file: /no/such}}}`})
	if err != nil || len(c.Notes()) > 0 {
		t.Fatal(err, c.Notes())
	}
	if err := c.CheckHeaderFiles(); err == nil || !strings.Contains(err.Error(), `admin.webhook.headers.authorization.file: cannot read "/no/such"`) {
		t.Errorf("a token that is not there: %v", err)
	}
}
