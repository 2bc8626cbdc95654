package events

import (
	"log/slog"
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Event is something that an operator acts on, or its end. All fields but ID, Times and First are the publisher's.
type Event struct {
	// ID is greater than that of every event that was told before, also by an earlier process.
	ID   uint64    `json:"id"`
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	// Level is how bad it is: info, warn or error.
	Level Level `json:"level"`
	// What it is about; empty: it is not about one. Group is as in logs, and ControlPlane an address.
	Group        string        `json:"group,omitempty"`
	Type         cache.TypeURL `json:"type,omitempty"`
	ControlPlane string        `json:"control_plane,omitempty"`
	Client       *Client       `json:"client,omitempty"`
	// Names are the first of the resources that it is about, and Count is how many these are.
	Names []string `json:"names,omitempty"`
	Count int      `json:"count,omitempty"`
	// Since is from when on what it tells was so, if that is not Time.
	Since   time.Time `json:"since,omitzero"`
	Message string    `json:"message"`
	// Times is how often it has happened, the last time at Time, and the first time at First.
	Times int       `json:"times"`
	First time.Time `json:"first"`

	// Subject is the same for events that are repeats of each other if their kind is, too. Empty: it is no repeat.
	Subject string `json:"-"`
}

// Client is the client's stream that an Event is about.
type Client struct {
	Stream   uint64 `json:"stream"`
	Node     string `json:"node"`
	Peer     string `json:"peer"`
	Identity string `json:"identity,omitempty"`
	Protocol string `json:"protocol"`
}

// Kind says what has happened. It is a closed set, fit for a metric label.
type Kind string

// The values of Kind.
const (
	Nack     Kind = "nack"      // a client has rejected a response
	NackOver Kind = "nack_over" // it has accepted what it had rejected, or what has replaced that, or is gone

	Stale     Kind = "stale"      // a client lacks something, or has not acknowledged it, for admin.stale_after
	StaleOver Kind = "stale_over" // it is in step again, or gone

	TypeRefused Kind = "type_refused" // the relay refuses a client a type, and serves the others (NODE-14)

	GroupRefused Kind = "group_refused" // a group cannot be had, or a control plane refuses it

	RemovalsHeld      Kind = "removals_held"      // the mass-removal guard holds back removals (H-22)
	RemovalsReleased  Kind = "removals_released"  // some are carried out
	RemovalsForgotten Kind = "removals_forgotten" // some are not carried out, since the resources are there after all

	TypeQuarantined Kind = "type_quarantined" // the control plane ends the stream when asked for a type (H-39)
	TypeAcquitted   Kind = "type_acquitted"   // it does not any more

	ControlPlaneLost     Kind = "control_plane_lost"     // or cannot be reached
	ControlPlaneBack     Kind = "control_plane_back"     // it answers
	ControlPlaneSwitched Kind = "control_plane_switched" // another one of the list is put to use
	ResponseRejected     Kind = "response_rejected"      // the relay has rejected a response of the control plane

	ConfigReloaded       Kind = "config_reloaded"
	ConfigRefused        Kind = "config_refused"
	CertificatesReloaded Kind = "certificates_reloaded"
	CertificatesRefused  Kind = "certificates_refused"
	RulesReloaded        Kind = "rules_reloaded"
	RulesRefused         Kind = "rules_refused"
)

// Kinds are the values of Kind.
func Kinds() []Kind {
	return []Kind{
		Nack, NackOver, Stale, StaleOver, TypeRefused, GroupRefused, RemovalsHeld, RemovalsReleased, RemovalsForgotten, TypeQuarantined, TypeAcquitted,
		ControlPlaneLost, ControlPlaneBack, ControlPlaneSwitched, ResponseRejected,
		ConfigReloaded, ConfigRefused, CertificatesReloaded, CertificatesRefused, RulesReloaded, RulesRefused,
	}
}

// Level is how bad an event is.
type Level string

// The values of Level.
const (
	Info  Level = "info"
	Warn  Level = "warn"
	Error Level = "error"
)

// LevelOf is the level of a line of the log.
func LevelOf(l slog.Level) Level {
	switch {
	case l >= slog.LevelError:
		return Error
	case l >= slog.LevelWarn:
		return Warn
	}
	return Info
}

// What an event shows of what peers say: the first few names, and the beginning of each text, in bytes.
const (
	maxNames   = 5
	maxName    = 200
	maxMessage = 1 << 10
)

// bounded is an event that takes no more memory than it may.
func (e Event) bounded() Event {
	e.Message = clip(e.Message, maxMessage)
	e.Names = clipAll(e.Names)
	if e.Client != nil {
		c := *e.Client
		c.Node, c.Identity = clip(c.Node, maxName), clip(c.Identity, maxName)
		e.Client = &c
	}
	e.Type = cache.TypeURL(clip(string(e.Type), maxName))
	return e
}

func clipAll(names []string) []string {
	first := make([]string, 0, min(len(names), maxNames))
	for _, name := range names[:min(len(names), maxNames)] {
		first = append(first, clip(name, maxName))
	}
	return first
}

// clip is the beginning of a text, in a copy of its own.
func clip(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return strings.Clone(s)
}
