// The official TypeScript SDK, version 2: with the handshake, with negotiation, or at one revision.
import {
  Client,
  ResourceNotFoundError,
  SSEClientTransport,
  StreamableHTTPClientTransport,
} from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { ask, wanted } from './ask.mjs';

const { mode, command, args, url, headers } = wanted;
const transports = {
  stdio: () => new StdioClientTransport({ command, args }),
  http: () => new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }),
  sse: () => new SSEClientTransport(new URL(url), { requestInit: { headers } }),
};
const client = new Client({ name: 'v2', version: '0' }, { versionNegotiation: { mode } });
const isMissing = (error) => error instanceof ResourceNotFoundError;
await ask(client, transports[wanted.transport](), isMissing);
