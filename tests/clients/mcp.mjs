// Speaks with an MCP server as the official client does. The argument is a plan: how to reach the server ({url}, or
// {command, args}), and requests to send, one after the other. What comes back for each is printed, with the number of
// notifications of progress that came meanwhile.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import * as types from '@modelcontextprotocol/sdk/types.js';

const plan = JSON.parse(process.argv[2]);
const client = new Client(
  { name: 'clients', version: '1' },
  { capabilities: { sampling: {}, elicitation: {}, roots: { listChanged: true } } },
);
client.setRequestHandler(types.CreateMessageRequestSchema, () => ({
  model: 'none', role: 'assistant', content: { type: 'text', text: 'sampled' },
}));
client.setRequestHandler(types.ElicitRequestSchema, () => ({ action: 'decline' }));
client.setRequestHandler(types.ListRootsRequestSchema, () => ({ roots: [{ uri: 'file:///nowhere', name: 'nowhere' }] }));
let logged = 0;
client.setNotificationHandler(types.LoggingMessageNotificationSchema, () => { logged++; });

const transport = plan.url
  ? new StreamableHTTPClientTransport(new URL(plan.url), { requestInit: { headers: plan.headers ?? {} } })
  : new StdioClientTransport({ command: plan.command, args: plan.args, env: plan.env, stderr: 'inherit' });
await client.connect(transport);

const send = async ({ method, params }) => {
  let progress = 0;
  try {
    const result = await client.request({ method, params }, types.ResultSchema, { onprogress: () => { progress++; }, timeout: 30000 });
    return { method, result, progress };
  } catch (error) {
    return { method, error: { code: error.code, message: error.message } };
  }
};

const answers = [];
for (const step of plan.steps) {
  answers.push(step.together ? await Promise.all(step.together.map(send)) : await send(step));
}
const said = { server: client.getServerVersion(), capabilities: client.getServerCapabilities(), instructions: client.getInstructions(), answers };
await client.close();
await new Promise((written) => process.stdout.write(JSON.stringify(said), written));
process.exit();
