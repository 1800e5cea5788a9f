// Package jwt reads signed JSON Web Tokens (RFC 7519) strictly, in the compact form of RFC 7515 alone.
//
// A token is accepted if and only if
//
//   - it is three parts of canonical base64url without padding, of at most [MaxToken] bytes together;
//   - header and claims are strict JSON objects: no member twice, at any depth;
//   - the key that its kid names, or without a kid the only one of its algorithm, verifies it by the one algorithm that this
//     key is for: EdDSA with Ed25519 (RFC 8037), ES256 or RS256 (RFC 7518);
//   - the header asks for nothing that is not done here: no crit, no b64, no zip, no other type than a JWT;
//   - exp is there and not over, nbf and iat, if there, are not ahead, iss is the issuer, and aud is or contains the audience.
//
// A key that a token brings with it, or points to, is never looked at. Errors never repeat what a token says.
package jwt
