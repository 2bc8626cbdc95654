package admin

import (
	"strconv"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/service"
	"github.com/xds-relay/xds-relay/upstream"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// Series are there from the start, at 0: a series that begins with its first event has no
// increase at that event, and an alert on it is late by one.

// fromTheStart makes the series of closed sets of labels.
func (m *Metrics) fromTheStart() {
	m.upstream, m.clients = newByType(m.newUpstreamSeries), newByType(m.newClientSeries)
	for _, short := range cache.Shorts() {
		m.convergence.seconds.WithLabelValues(short)
		m.nacksSent.WithLabelValues(short)
		m.unasked.WithLabelValues(short)
		m.leftOut.WithLabelValues(short)
		m.expired.WithLabelValues(short)
		for _, what := range []downstream.OversizedKind{downstream.OversizedResource, downstream.OversizedResponse} {
			m.oversized.WithLabelValues(short, string(what))
		}
		for _, r := range refusedTypes(short) {
			m.refusals.WithLabelValues(r.Type, string(r.Reason), string(r.Notice))
		}
		for _, told := range []session.Notice{session.NoticeErrors, session.NoticeNothing} {
			m.refusals.WithLabelValues(short, string(session.Glob), string(told))
		}
	}
	for _, reason := range upstream.Reasons() {
		m.reconnects.WithLabelValues(reason)
	}
	for _, reason := range upstream.Drops() {
		m.dropped.WithLabelValues(reason)
	}
	for _, reason := range downstream.Reasons() {
		m.disconnects.WithLabelValues(string(reason))
	}
	for _, reason := range downstream.ClosedReasons() {
		m.closed.WithLabelValues(string(reason))
	}
	for _, reason := range session.NamesRefused() {
		m.names.WithLabelValues(string(reason))
	}
	for _, of := range service.All() {
		if of.RESTPath() != "" {
			for _, code := range downstream.PollCodes() {
				m.polls.WithLabelValues(of.Type.Short(), strconv.Itoa(code))
			}
		}
	}
	for _, protocol := range protocols {
		m.connects.WithLabelValues(protocol)
	}
}

// refusedTypes are the kinds of refusal that a type can meet.
func refusedTypes(short string) (kinds []session.RefusedType) {
	for _, reason := range session.RefusalReasons() {
		for _, told := range []session.Notice{session.NoticeErrors, session.NoticeNothing} {
			kinds = append(kinds, session.RefusedType{Type: short, Reason: reason, Notice: told})
		}
	}
	return kinds
}

// entriesFromTheStart makes those of the control planes that the list has now.
func (m *Metrics) entriesFromTheStart() {
	for _, address := range m.relay.ControlPlanes() {
		m.entryFromTheStart(address)
	}
}

// entryFromTheStart makes those of a control plane of the list.
func (m *Metrics) entryFromTheStart(address string) {
	for _, sotw := range []bool{false, true} {
		m.active.WithLabelValues(address, upstream.Stream{SotW: sotw}.Mode())
	}
	m.connections.WithLabelValues(address)
	m.bytesIn.WithLabelValues(address)
	for _, v := range []upsession.CheckResult{upsession.There, upsession.Silent, upsession.Unclear} {
		m.checks.WithLabelValues(address, v.String())
	}
}
