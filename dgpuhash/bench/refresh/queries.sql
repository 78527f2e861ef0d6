-- Queries of TPC-H in the SQL of DuckDB and Polars; money in cents, revenues in hundredths of them.

-- 1
select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty,
sum(l_extendedprice) as sum_base_price,
sum(l_extendedprice * (100 - l_discount)) as sum_disc_price,
sum(l_extendedprice * (100 - l_discount) * (100 + l_tax)) as sum_charge,
avg(l_quantity) as avg_qty, avg(l_extendedprice) as avg_price, avg(l_discount) as avg_disc,
count(*) as count_order
from lineitem where l_shipdate <= date '1998-09-02'
group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus;

-- 3
select l_orderkey, sum(l_extendedprice * (100 - l_discount)) as revenue, o_orderdate,
o_shippriority from customer join orders on c_custkey = o_custkey
join lineitem on l_orderkey = o_orderkey
where c_mktsegment = 'BUILDING' and o_orderdate < date '1995-03-15'
and l_shipdate > date '1995-03-15' group by l_orderkey, o_orderdate, o_shippriority
order by revenue desc, o_orderdate, l_orderkey limit 10;

-- 5
select n_name, sum(l_extendedprice * (100 - l_discount)) as revenue
from customer join orders on c_custkey = o_custkey
join lineitem on l_orderkey = o_orderkey
join supplier on l_suppkey = s_suppkey and c_nationkey = s_nationkey
join nation on s_nationkey = n_nationkey join region on n_regionkey = r_regionkey
where r_name = 'ASIA' and o_orderdate >= date '1994-01-01'
and o_orderdate < date '1995-01-01' group by n_name order by revenue desc;

-- 7
select n1.n_name as supp_nation, n2.n_name as cust_nation,
extract(year from l_shipdate) as l_year,
sum(l_extendedprice * (100 - l_discount)) as revenue
from supplier join lineitem on s_suppkey = l_suppkey join orders on o_orderkey = l_orderkey
join customer on c_custkey = o_custkey join nation as n1 on s_nationkey = n1.n_nationkey
join nation as n2 on c_nationkey = n2.n_nationkey
where ((n1.n_name = 'FRANCE' and n2.n_name = 'GERMANY')
or (n1.n_name = 'GERMANY' and n2.n_name = 'FRANCE'))
and l_shipdate >= date '1995-01-01' and l_shipdate <= date '1996-12-31'
group by supp_nation, cust_nation, l_year order by supp_nation, cust_nation, l_year;

-- 9
select n_name, extract(year from o_orderdate) as o_year,
sum(l_extendedprice * (100 - l_discount) - ps_supplycost * l_quantity * 100) as sum_profit
from part join lineitem on p_partkey = l_partkey
join partsupp on ps_suppkey = l_suppkey and ps_partkey = l_partkey
join supplier on s_suppkey = l_suppkey join orders on o_orderkey = l_orderkey
join nation on s_nationkey = n_nationkey where p_name like '%green%'
group by n_name, o_year order by n_name, o_year desc;

-- 10
select c_custkey, c_name, sum(l_extendedprice * (100 - l_discount)) as revenue,
c_acctbal, n_name, c_address, c_phone, c_comment from customer
join orders on c_custkey = o_custkey
join lineitem on l_orderkey = o_orderkey join nation on c_nationkey = n_nationkey
where o_orderdate >= date '1993-10-01' and o_orderdate < date '1994-01-01'
and l_returnflag = 'R'
group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
order by revenue desc, c_custkey limit 20;

-- 12
select l_shipmode,
sum(case when o_orderpriority in ('1-URGENT', '2-HIGH') then 1 else 0 end)
as high_line_count,
sum(case when o_orderpriority in ('1-URGENT', '2-HIGH') then 0 else 1 end)
as low_line_count from orders join lineitem on o_orderkey = l_orderkey
where l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate
and l_shipdate < l_commitdate and l_receiptdate >= date '1994-01-01'
and l_receiptdate < date '1995-01-01' group by l_shipmode order by l_shipmode;

-- 18
select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, quantity
from (select l_orderkey, sum(l_quantity) as quantity from lineitem group by l_orderkey
having sum(l_quantity) > 300) as large join orders on o_orderkey = l_orderkey
join customer on c_custkey = o_custkey
order by o_totalprice desc, o_orderdate, o_orderkey limit 100;
