// A certified OpenID provider as the desk's issuer: node issuer.mjs FILE. The file is read anew for each token, so
// that tests change people and tokens while it runs: {port, keys, idp, people, clients, scopes, ttl, twists}.
import { readFileSync } from 'node:fs';
import { createLocalJWKSet, jwtVerify } from 'jose';
import { Provider } from 'oidc-provider';

const now = () => JSON.parse(readFileSync(process.argv[2], 'utf8'));
const { port, keys, idp, clients, scopes } = now();
const SCOPE = 'refdesk:search';
const BY_ASSERTION = 'urn:ietf:params:oauth:grant-type:jwt-bearer';
const issuer = `http://127.0.0.1:${port}`;

const provider = new Provider(issuer, {
  clients,
  jwks: { keys },
  scopes: ['openid', 'offline_access', ...scopes],
  claims: { openid: ['sub'] },
  pkce: { required: () => true },
  findAccount: (_context, id) => now().people[id] && { accountId: id, claims: () => ({ sub: id }) },
  issueRefreshToken: (_context, client) => client.grantTypeAllowed('refresh_token'),
  rotateRefreshToken: false,
  ttl: { Interaction: 600, Session: 600, Grant: 600, RefreshToken: 600, AuthorizationCode: 60, IdToken: 600 },
  discovery: { authorization_grant_profiles_supported: ['urn:ietf:params:oauth:grant-profile:id-jag'] },
  extraTokenClaims: (_context, token) => now().people[token.accountId] ?? now().people[''],
  formats: {
    customizers: {
      jwt: (_context, _token, parts) => {
        const { header, payload } = now().twists;
        parts.header = { ...parts.header, ...header };
        Object.assign(parts.payload, payload);
      },
    },
  },
  features: {
    clientCredentials: { enabled: true },
    introspection: { enabled: true },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo,
      useGrantedResource: () => true,
    },
    revocation: { enabled: true },
  },
});

function getResourceServerInfo(_context, resource) {
  const [{ alg }] = keys;
  return {
    scope: scopes.join(' '),
    audience: resource,
    accessTokenFormat: 'jwt',
    accessTokenTTL: now().ttl,
    jwt: { sign: { alg } },
  };
}

// The identity provider's assertion (ID-JAG), exchanged for an access token without a sign-in.
provider.registerGrantType(
  BY_ASSERTION,
  async (context) => {
    const { assertion, resource } = context.oidc.params;
    const { payload } = await jwtVerify(assertion, createLocalJWKSet({ keys: idp }), {
      audience: issuer,
      typ: 'oauth-id-jag+jwt',
    });
    const { client } = context.oidc;
    if (payload.client_id !== client.clientId || payload.resource !== resource) {
      context.throw(400, 'invalid_grant');
    }
    const grant = new provider.Grant({ accountId: payload.sub, clientId: client.clientId });
    grant.addResourceScope(resource, SCOPE);
    const token = new provider.AccessToken({
      accountId: payload.sub,
      client,
      grantId: await grant.save(),
      gty: 'id-jag',
      scope: SCOPE,
    });
    token.resourceServer = new provider.ResourceServer(resource, getResourceServerInfo(context, resource));
    const access_token = await token.save();
    context.body = { access_token, expires_in: token.expiration, scope: SCOPE, token_type: 'Bearer' };
  },
  ['assertion', 'resource', 'scope'],
);

provider.listen(port, '127.0.0.1', () => console.log('listening'));
