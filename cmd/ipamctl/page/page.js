// The address of a view is behind the #: nothing, pool/NAME, pool/NAME/PREFIX, find/WORD.
const main = document.getElementById('main'), live = document.getElementById('live'), word = document.getElementById('word')
let busy = false, again = false, order = 'hilbert'

const get = async (path, args = {}) => {
  const r = await fetch(path + '?' + new URLSearchParams(args))
  if (!r.ok) throw new Error((await r.text()).trim())
  return r
}
const rows = async (path, args) => (await get(path, args)).json()
const el = (name, attributes = {}, ...children) => {
  const e = name === 'svg' || name === 'rect' ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name)
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v)
  e.append(...children.filter(c => c !== undefined && c !== ''))
  return e
}
const link = (text, ...parts) => el('a', { href: '#' + parts.map(encodeURIComponent).join('/') }, text)
const number = n => Number(n) < 2 ** 40 ? Number(n).toLocaleString('en') : '~2^' + Math.round(Math.log2(Number(n)))

function bar(c) {
  const svg = el('svg', { class: 'bar', viewBox: '0 0 100 10', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${c.available} of ${c.capacity} available` })
  let x = 0
  for (const state of ['used', 'cooling', 'reserved']) {
    const width = Math.max(100 * Number(c[state]) / Number(c.capacity), c[state] == 0 ? 0 : 0.5)
    svg.append(el('rect', { class: state, x, y: 0, width, height: 10 }))
    x += width
  }
  return svg
}

// table draws rows; a column is its title, its cell, and 'n' for numbers or 'less' for what a phone leaves out.
function table(title, answer, columns, none) {
  const head = el('tr', {}, ...columns.map(([name, , kind]) => el('th', { class: kind || '' }, name)))
  const body = answer.rows.map(r => el('tr', {}, ...columns.map(([, cell, kind]) => el('td', { class: kind || '' }, cell(r) ?? ''))))
  return [el('h2', {}, title), answer.rows.length ? el('div', { class: 'wide' }, el('table', {}, head, ...body)) : el('p', { class: 'soft' }, none),
    answer.more ? el('p', { class: 'soft' }, `Only the first ${answer.rows.length} are shown.`) : '']
}

const state = r => r.state + (r.borrowed ? ', borrowed' : '')
const text = m => Object.entries(m || {}).map(([k, v]) => `${k}=${v}`).join(', ')
const addresses = (title, answer) => table(title, answer, [
  ['Address', r => link(r.address, 'find', r.address)], ['State', state], ['Handle', r => r.handle && link(r.handle, 'find', r.handle)],
  ['Host', r => r.host && link(r.host, 'find', r.host)], ['Block', r => r.block && link(r.block, 'pool', r.pool, r.block)],
  ['Until', r => r.until, 'less'], ['Attributes', r => text(r.attributes), 'less'],
], 'No address is held here.')
const counts = [['Used', r => number(r.addresses.used), 'n'], ['Cooling', r => number(r.addresses.cooling), 'n less'],
  ['Reserved', r => number(r.addresses.reserved), 'n less'], ['Available', r => number(r.addresses.available), 'n'], ['', r => bar(r.addresses)]]

const others = answer => answer.rows.length ? table('Prefixes, numbers, attachments, limits', answer, [['Kind', r => r.kind], ['What', r => link(r.what, 'find', r.what)], ['Is', r => r.is]]) : []

async function showPools() {
  const [pools, changes, rest] = await Promise.all([rows('pools'), rows('changes'), rows('others')])
  return [...table('Pools', pools, [['Name', r => link(r.name, 'pool', r.name)], ['Prefix', r => r.prefix], ...counts,
    ['State', r => r.state, 'less'], ['Blocks', r => number(r.blocks), 'n less'], ['Largest free', r => r.largestFree ? '/' + r.largestFree.split('/')[1] : 'none', 'less']], 'There are no pools.'),
  ...others(rest), ...table('Latest changes', { rows: changes.rows.slice(0, 20) }, [['Time', r => r.time], ['Change', r => r.change], ['What', r => r.what],
    ['Before', r => r.before, 'less'], ['After', r => r.after]], 'None since this page was started, or none that the store delivers.')]
}

async function showFound(q) {
  const found = await rows('find', { q })
  const pools = { rows: found.rows.filter(r => r.prefix) }, held = { rows: found.rows.filter(r => r.address), more: found.more }
  const hosts = { rows: found.rows.filter(r => r.blocks && !r.prefix) }, rest = { rows: found.rows.filter(r => r.kind) }
  return [...pools.rows.length ? table('Pools', pools, [['Name', r => link(r.name, 'pool', r.name)], ['Prefix', r => r.prefix], ...counts]) : [],
    ...hosts.rows.length ? table('Hosts', hosts, [['Host', r => r.host], ['Blocks', r => r.blocks.join(', ')], ['Addresses', r => number(r.addresses), 'n']]) : [],
    ...others(rest), ...held.rows.length || !found.rows.length ? addresses(q, held) : []]
}

async function showPool(name, prefix) {
  const pool = (await rows('pools')).rows.find(p => p.name === name)
  if (!pool) throw new Error(`there is no pool ${name}`)
  const at = prefix || pool.prefix, width = Math.min(Math.max(main.clientWidth, 320), 1000)
  const [drawing, blocks, held] = await Promise.all([get('map.svg', { pool: name, in: at, order, width }), rows('blocks', { in: at }), rows('addresses', { in: at })])
  const picture = new DOMParser().parseFromString(await drawing.text(), 'image/svg+xml').documentElement
  const choice = el('select', { 'aria-label': 'order of the cells' }, ...['hilbert', 'rows'].map(o => el('option', o === order ? { selected: '' } : {}, o)))
  choice.onchange = () => { order = choice.value; show() }
  const map = el('div', { class: 'map' }, document.adoptNode(picture))
  map.onclick = event => {
    const title = event.target.closest('path')?.querySelector('title')
    if (!title) return
    const cell = title.textContent.split(' ')[0], [ip, bits] = cell.split('/')
    location.hash = bits === (ip.includes(':') ? '128' : '32') ? '#find/' + encodeURIComponent(ip) : '#' + ['pool', name, cell].map(encodeURIComponent).join('/')
  }
  return [el('h1', {}, link(name, 'pool', name), prefix ? ' › ' + prefix : ' ' + pool.prefix), el('p', {}, choice), map,
    ...table('Blocks', blocks, [['Block', r => link(r.block, 'pool', name, r.block)], ['Owner', r => r.owner ? link(r.owner, 'find', r.owner) : '(no owner)'], ...counts], 'There is no block here.'),
    ...addresses('Addresses', held)]
}

// settle makes the children of a node equal to others. What stays keeps its focus, its choice and its place.
function settle(parent, nodes) {
  nodes.forEach((node, i) => {
    const old = parent.childNodes[i]
    if (!old) parent.append(node)
    else if (old.isEqualNode(node)) return
    else if (old.nodeName !== node.nodeName || old.nodeType !== Node.ELEMENT_NODE) old.replaceWith(node)
    else {
      for (const { name } of [...old.attributes]) if (!node.hasAttribute(name)) old.removeAttribute(name)
      for (const { name, value } of node.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value)
      settle(old, [...node.childNodes])
    }
  })
  while (parent.childNodes.length > nodes.length) parent.lastChild.remove()
}

async function viewOf(parts) {
  try {
    switch (parts[0]) {
      case 'pool': return await showPool(parts[1], parts[2])
      case 'find': return await showFound(parts[1])
      default: return await showPools()
    }
  } catch (e) { return [el('p', { class: 'bad', role: 'alert' }, e.message)] }
}

// show fetches one view at a time, so that each that was begun is seen, and another one when that is done if something changed.
async function show() {
  again = true
  if (busy) return
  busy = true
  while (again) {
    again = false
    const at = location.hash, parts = at.slice(1).split('/').map(decodeURIComponent), view = await viewOf(parts)
    if (at !== location.hash) { again = true; continue }
    const nodes = view.filter(v => v !== '')
    if (main.dataset.shown === parts.join('/')) settle(main, nodes)
    else {
      word.value = parts[0] === 'find' ? parts[1] : ''
      main.replaceChildren(...nodes)
    }
    main.dataset.shown = parts.join('/')
    main.dataset.views = Number(main.dataset.views || 0) + 1
  }
  busy = false
}

document.querySelector('form').onsubmit = event => {
  event.preventDefault()
  const to = '#find/' + encodeURIComponent(word.value.trim())
  if (word.value.trim() && location.hash !== to) location.hash = to
}
window.onhashchange = show
const events = new EventSource('events')
let seen = -1
events.onmessage = event => {
  const now = JSON.parse(event.data)
  live.textContent = now.fault || 'live'
  live.className = now.fault ? 'bad' : ''
  main.dataset.revision = now.revision
  if (now.revision !== seen) show()
  seen = now.revision
}
events.onerror = () => { live.textContent = 'not connected'; live.className = 'bad' }
show()
