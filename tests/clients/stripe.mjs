// Creates payment intents at the address given, several at once and then one with a key of its own, and prints what the
// SDK gives for each. The SDK draws a key for every creation, and sends it again by itself when an answer does not come.
import Stripe from 'stripe';

const [host, port] = process.argv[2].split(':');
const stripe = new Stripe('sk_test_123', { protocol: 'http', host, port, maxNetworkRetries: Number(process.argv[4]), timeout: 20000, telemetry: true });

const create = async (amount, options) => {
  try {
    const intent = await stripe.paymentIntents.create({ amount, currency: 'eur', metadata: { order: `order-${amount}` } }, options);
    const { headers, idempotencyKey, statusCode } = intent.lastResponse;
    return { object: intent, status: statusCode, key: idempotencyKey, replayed: headers['idempotent-replayed'] === 'true' };
  } catch (error) {
    return { status: error.statusCode, code: error.raw?.code ?? error.code, type: error.type, message: error.message };
  }
};

const results = await Promise.all(Array.from({ length: Number(process.argv[3]) }, (_, i) => create(1000 + i)));
results.push(await create(7, { idempotencyKey: 'my-own-key' }), await create(7, { idempotencyKey: 'my-own-key' }));
await new Promise((written) => process.stdout.write(JSON.stringify(results), written));
process.exit(); // timers of answers that never came would keep it
