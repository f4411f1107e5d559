package commit

import "context"

func forecast(ctx context.Context, env Env, changes []Change, o Options) (Facts, error) {
	t, err := begin(env, "forecast", o)
	if err != nil {
		return Facts{}, wrap("forecast", err)
	}
	defer t.close()
	// Refusals are admission's business; what could be planned tells the facts.
	if _, err := t.plan(changes); err != nil {
		return Facts{}, wrap("forecast", err)
	}
	t.chooseStyle()
	t.facts.Forecast = true
	return t.facts, ctx.Err()
}
