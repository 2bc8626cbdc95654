package relay

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/config"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// The configuration of each package; none of them knows the schema of the file.

// HubConfig is the configuration of a group's Hub.
func HubConfig(c *config.Config) fanout.Config {
	g := c.Cache.MassRemovalGuard
	return fanout.Config{
		History: fanout.NewHistory(historyBytes(c)),
		Types:   typeTable(c), Linger: c.Timers.NameLinger, MaxLinger: c.Cache.MaxLingeringNames,
		Guard:        fanout.Guard{Fraction: g.Fraction, Min: g.Min, Within: g.Within, Hold: g.Hold},
		Unasked:      fanout.NewUnasked(int(c.Cache.MaxUnaskedBytes)),
		KeepUnwanted: c.Cache.Snapshot.Dir != "" && c.Cache.Snapshot.KeepUnwanted > 0,
	}
}

// historyBytes bounds what is kept of former resources: nothing where nobody can see it.
func historyBytes(c *config.Config) int {
	if c.Admin.Listen == "" {
		return 0
	}
	return int(c.Admin.History)
}

// DownstreamConfig is the configuration of the Sessions.
func DownstreamConfig(c *config.Config) session.Config {
	return session.Config{
		Instance:          c.InstanceName(),
		AckTimeout:        c.Timers.AckTimeout,
		WarmingHold:       c.Timers.WarmingHold,
		ResendOnReconnect: TypeURLs(c.Downstream.ResendOnReconnectTypes),
		NeverSynthesize:   TypeURLs(c.Downstream.NeverSynthesizeRemoval),
		UnavailableAfter:  c.Timers.UnavailableAfter,
		ForwardHeaders:    c.Groups.ForwardHeaders,
		Types:             typeTable(c),
		MaxName:           int(c.Downstream.MaxNameBytes),
		Relays:            c.Downstream.Relays,
		MaxNames:          c.Downstream.MaxNamesPerStream,
		MaxRelayNames:     c.Downstream.NamesOfRelays(),
		MaxResponse:       int(c.Downstream.MaxResponseBytes),
	}
}

// UpstreamConfig is what the Core of a group is told whose types come from upstream itself; its Node is the
// group's own affair.
func UpstreamConfig(c *config.Config, f cache.Fingerprint) upsession.Config {
	return upstreamConfig(c, c.Upstream.Sources()[0], f)
}

func upstreamConfig(c *config.Config, s config.Source, f cache.Fingerprint) upsession.Config {
	aliveEvery := time.Duration(0)
	if c.Cache.Snapshot.Dir != "" {
		aliveEvery = stampEvery
	}
	return upsession.Config{
		Dialect: upsession.Dialect{
			Versions:        initialVersions[c.Upstream.InitialVersions],
			WildcardForm:    wildcardForms[c.Upstream.WildcardForm],
			Chunks:          chunkMarkers[c.Upstream.ChunkMarker],
			ExplicitMissing: switches[c.Upstream.ExplicitMissing],
			MaxRequest:      int(c.Upstream.MaxRequestBytes),
		},
		SendNodeAlways:   c.Upstream.SendNodeAlways,
		Entries:          entries(s),
		Types:            TypeURLs(s.Types),
		Prefetch:         prefetch(c),
		Coalesce:         c.Upstream.CoalesceWindow,
		MaxSet:           int(c.Upstream.MaxSetBytes),
		Missing:          c.Timers.DNETimeout,
		MissingExplicit:  c.Timers.DNETimeoutExplicit,
		Settle:           c.Timers.Settle,
		SettleCap:        c.Timers.SettleCap,
		UnavailableAfter: c.Timers.UnavailableAfter,
		HealthCheck:      c.Upstream.HealthCheck == config.HealthCheckAuto,
		AliveEvery:       aliveEvery,
		Failover:         upsession.Failover{FailoverAfter: c.Upstream.FailoverAfter, FailbackAfter: c.Upstream.FailbackAfter},
		Backoff: upsession.Backoff{
			Initial: c.Upstream.Backoff.Initial, Max: c.Upstream.Backoff.Max,
			Factor: c.Upstream.Backoff.Factor, Jitter: c.Upstream.Backoff.Jitter,
		},
		Fingerprint: f,
	}
}

// prefetch are the types that may be asked for before a client does. Where rules say who may read what, the control plane is
// asked for nothing that nobody may read.
func prefetch(c *config.Config) []cache.TypeURL {
	if c.Upstream.Prefetch == config.PrefetchOff || c.Authz.RulesFile != "" {
		return nil
	}
	except := TypeURLs(c.Upstream.PrefetchExcept)
	return slices.DeleteFunc(upsession.Prefetchable(), func(t cache.TypeURL) bool { return slices.Contains(except, t) })
}

// entries are the control planes of a source.
func entries(s config.Source) (entries []upsession.Entry) {
	for i, e := range s.Entries {
		entries = append(entries, upsession.Entry{Name: e.Name, Mode: modes[e.Mode], ForwardHeaders: e.ForwardHeaders, LastResort: i > 0 && e.Resort()})
	}
	return entries
}

var (
	modes = map[config.FallbackMode]upsession.Mode{
		config.FallbackMode(config.UpstreamModeAuto):  upsession.ModeAuto,
		config.FallbackMode(config.UpstreamModeDelta): upsession.ModeDelta,
		config.FallbackMode(config.UpstreamModeSotW):  upsession.ModeSotW,
	}
	initialVersions = map[config.InitialVersions]upsession.Versions{
		config.InitialVersionsSameEntry: upsession.VersionsSameEntry,
		config.InitialVersionsAlways:    upsession.VersionsAlways,
		config.InitialVersionsNever:     upsession.VersionsNever,
	}
	wildcardForms = map[config.WildcardForm]upsession.WildcardForm{
		config.WildcardFormAuto:     upsession.WildcardAuto,
		config.WildcardFormExplicit: upsession.WildcardExplicit,
		config.WildcardFormLegacy:   upsession.WildcardLegacy,
	}
	chunkMarkers = map[config.ChunkMarker]upsession.Chunks{
		config.ChunkMarkerAuto:    upsession.ChunksAuto,
		config.ChunkMarkerNone:    upsession.ChunksNone,
		config.ChunkMarkerRelay:   upsession.ChunksRelay,
		config.ChunkMarkerDiderot: upsession.ChunksDiderot,
	}
	switches = map[config.Switch]upsession.Tristate{
		config.SwitchAuto: upsession.Auto,
		config.SwitchOn:   upsession.Yes,
		config.SwitchOff:  upsession.No,
	}
)

// TypeURLs are types as a configuration names them.
func TypeURLs(names []string) []cache.TypeURL {
	var types []cache.TypeURL
	for _, name := range names {
		url, _ := config.TypeURL(name)
		types = append(types, cache.TypeURL(url))
	}
	return types
}

// typeTable is the type table with the configured overrides.
func typeTable(c *config.Config) cache.Types {
	types := make(cache.Types)
	for _, o := range c.Types {
		url, _ := config.TypeURL(o.TypeURL)
		t := cache.TypeURL(url)
		p := cache.Types{}.Of(t)
		if o.FullState != nil {
			p.FullState = *o.FullState
		}
		if o.EmptyMeans != "" {
			p.EmptyIsWildcard = o.EmptyMeans == config.EmptyMeansWildcard
		}
		if o.Secret != nil {
			p.Secret = *o.Secret
		}
		types[t] = p
	}
	return types
}

// Fingerprint makes versions, keyed for secret types if there is a key (RECON-1).
func Fingerprint(c *config.Config) (cache.Fingerprint, error) {
	if c.VersionKeyFile == "" {
		return cache.Fingerprint{}, nil
	}
	key, err := os.ReadFile(c.VersionKeyFile)
	if err != nil {
		return cache.Fingerprint{}, fmt.Errorf("version_key_file: %w", err)
	}
	return cache.Fingerprint{SecretKey: key, Types: typeTable(c)}, nil
}
