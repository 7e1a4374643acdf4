export const handle = event => event;
