package api

// IssueRequest issues a challenge: POST /v1/challenges.
type IssueRequest struct {
	JobID     Digest  `json:"job_id" doc:"Belongs to the scope, not to the owner."`
	TTL       Seconds `json:"ttl_seconds,omitzero" minimum:"1" maximum:"86400" default:"3600"`
	Supersede bool    `json:"supersede,omitzero" doc:"Replace the caller's own pending one, whose nonce is dead then."`
	Token     Token   `json:"token,omitzero" doc:"Drawn at random before the first send; the same again for a repetition."`
}

// IssueAnswer is a challenge with its nonce, which no other answer gives.
type IssueAnswer struct {
	JobID     Digest `json:"job_id"`
	Nonce     Digest `json:"nonce"`
	Epoch     Epoch  `json:"epoch"`
	ExpiresAt Time   `json:"expires_at"`
	AAD       []byte `json:"aad_base64" doc:"The bytes to bind a sealed key to: the ASCII tag counterfoil.challenge.v1, epoch as 8 bytes big-endian, job, nonce."`
	Repeated  bool   `json:"repeated,omitzero"`
}

// ChallengeRequest reads a challenge: GET /v1/challenges/{job_id}.
type ChallengeRequest struct {
	JobID Digest `json:"-" path:"job_id"`
}

// The states of a challenge, besides [StateExpired].
const (
	StatePending  = "pending"
	StateConsumed = "consumed"
)

// Challenge is a challenge as it stands, without its nonce.
type Challenge struct {
	JobID     Digest `json:"job_id"`
	State     string `json:"state" enum:"pending,consumed,expired"`
	Epoch     Epoch  `json:"epoch"`
	IssuedAt  Time   `json:"issued_at"`
	ExpiresAt Time   `json:"expires_at"`
}

// ConsumeChallengeRequest uses a challenge: POST /v1/challenges/{job_id}/consume.
type ConsumeChallengeRequest struct {
	JobID Digest `json:"-" path:"job_id"`
	Nonce Digest `json:"nonce"`
	Epoch Epoch  `json:"epoch"`
	Token Token  `json:"token,omitzero" doc:"Drawn at random before the first send; the same again for a repetition."`
}

// ConsumeChallengeAnswer is the use of a challenge. Exactly one caller ever gets it.
type ConsumeChallengeAnswer struct {
	Consumed   bool `json:"consumed"`
	ConsumedAt Time `json:"consumed_at"`
	Repeated   bool `json:"repeated,omitzero"`
}

// AdvanceRequest advances the epoch by one: POST /v1/epoch/advance.
type AdvanceRequest struct {
	From  Epoch `json:"from" doc:"The epoch to go on from; refused if it is another one already."`
	Token Token `json:"token,omitzero" doc:"Drawn at random before the first send; the same again for a repetition."`
}

// EpochAnswer is the present epoch.
type EpochAnswer struct {
	Epoch    Epoch `json:"epoch"`
	Repeated bool  `json:"repeated,omitzero"`
}
