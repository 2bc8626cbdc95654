package alerts

import (
	_ "github.com/prometheus/prometheus/promql/promqltest"
	_ "github.com/prometheus/prometheus/rules"
	_ "go.yaml.in/yaml/v3"
)
