// A provider of identities: node provider.mjs PORT GATEWAY. Whoever signs in as NAME is NAME.
import { Provider } from "oidc-provider";

const [port, gateway] = process.argv.slice(2);
const provider = new Provider(`http://localhost:${port}`, {
  clients: [{
    client_id: "portunus",
    client_secret: "a secret of the browser tests",
    redirect_uris: [`${gateway}/auth/corp/callback`],
  }],
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["preferred_username"] },
  cookies: { keys: ["browser tests"] },
  pkce: { required: () => true },
  findAccount: (_, id) => ({
    accountId: id,
    claims: async () => ({
      sub: id, email: `${id}@corp.example`, email_verified: true, preferred_username: id,
    }),
  }),
});
provider.listen(Number(port), "127.0.0.1");
