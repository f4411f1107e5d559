package wire

// ProposeParams asks for an edit plan.
type ProposeParams struct {
	Operation      string    `json:"operation" wire:"nonempty"`
	Baseline       Baseline  `json:"baseline"`
	Scope          EditScope `json:"scope"`
	ProposalID     string    `json:"proposalId" wire:"nonempty"`
	IdempotencyKey string    `json:"idempotencyKey,omitempty"`
	Args           Data      `json:"args,omitempty" wire:"object"`
	PriorContext   Data      `json:"priorContext,omitempty" wire:"object"`
}

// EditScope lists the paths that a plan may touch, globs or names.
type EditScope struct {
	Paths            []string `json:"paths" wire:"some,unique"`
	OperationProfile string   `json:"operationProfile,omitempty"`
}

// ProposeResult carries a plan as it came.
type ProposeResult struct {
	Proposal Data `json:"proposal" wire:"object"` // an EditPlan
}
